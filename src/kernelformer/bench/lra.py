"""The Long Range Arena with every kernel: accuracy of small encoders from scratch, beside the commonest class.

Two protocols go by that name, and their figures cannot be compared: the arena's own (Tay et al. 2021, other sizes for
each task), of which the Flexformer paper says that it took the settings, and a small one that most PyTorch work uses
(2 layers of 2 heads of width 32). A ``Scale`` is of one of them.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from transformers import BertConfig, PreTrainedModel

from kernelformer.bench.environment import environment
from kernelformer.bench.language_modelling import kernel_rate
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.rows import Rows
from kernelformer.feature_maps import FEATURE_MAPS, width_for
from kernelformer.hf import BertForMeanClassification, BertForMeanPairs, convert
from kernelformer.hf.fresh import fresh_weights
from kernelformer.learn.classify import train_classifier
from kernelformer.learn.trainer import Schedule, Selection
from kernelformer.tasks.byte_texts import byte_task, manual_pairs, message_bytes, read_pairs
from kernelformer.tasks.listops import LISTOPS, LISTOPS_SHORT, draw_listops, read_listops
from kernelformer.tasks.pathfinder import draw_pathfinder, read_pathfinder
from kernelformer.tasks.pixels import read_cifar10, read_fashion
from kernelformer.tasks.sequences import SequenceBatches, SequenceTask, accuracy
from kernelformer.tasks.text import load_texts, split

__all__ = [
    "KERNELS",
    "PAPER",
    "REPEATED",
    "SCALES",
    "Protocol",
    "Scale",
    "build_encoder",
    "lra_markdown",
    "run_study",
    "scale_settings",
]

REPEATED: Final = ("softmax", "flexformer_n", "hedgehog", "favor")
"""With all seeds; the others have one."""

KERNELS: Final = (
    *REPEATED,
    *sorted(name for name, kind in FEATURE_MAPS.items() if not kind.is_gated and name not in REPEATED),
)

PAPER: Final[dict[str, dict[str, float]]] = {
    "softmax": {"listops": 37.23, "text": 65.66, "retrieval": 64.49, "image": 41.89, "pathfinder": 73.46},
    "elu": {"listops": 17.42, "text": 62.64, "retrieval": 58.92, "image": 43.40, "pathfinder": 75.11},
    "favor": {"listops": 16.97, "text": 63.67, "retrieval": 55.17, "image": 41.23, "pathfinder": 75.38},
    "rfa": {"listops": 17.20, "text": 64.89, "retrieval": 58.76, "image": 41.00, "pathfinder": 74.51},
    "cosformer": {"listops": 37.44, "text": 65.16, "retrieval": 64.04, "image": 43.56, "pathfinder": 72.32},
    "hedgehog": {"listops": 37.02, "text": 64.10, "retrieval": 68.67, "image": 41.64, "pathfinder": 75.89},
    "polaformer": {"listops": 36.93, "text": 69.65, "retrieval": 65.39, "image": 40.95, "pathfinder": 73.26},
    "flexformer_s": {"listops": 37.09, "text": 67.38, "retrieval": 71.55, "image": 43.39, "pathfinder": 76.15},
    "flexformer_n": {"listops": 37.18, "text": 65.72, "retrieval": 73.94, "image": 45.42, "pathfinder": 77.66},
}
"""Table 1 of the Flexformer paper, in percent."""


@dataclass(frozen=True)
class Protocol:
    """The encoder of a task, and how it is trained; weights are selected by validation accuracy."""

    num_layers: int
    num_heads: int
    width: int
    feed_forward: int
    num_features: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup: float
    dropout: float = 0.1


class Scale(NamedTuple):
    """tasks: name -> what gives the task, of the folder of originals (None: stand-ins), and its protocol."""

    tasks: dict[str, tuple[Callable[[Path | None], SequenceTask], Protocol]]


def _imdb(_: Path | None) -> SequenceTask:
    known = load_texts(["stanfordnlp/imdb:train"], label_column="label")
    train, validation = split(known, held_out=len(known) // 10, seed=0)
    return byte_task(train, validation, load_texts(["stanfordnlp/imdb:test"], label_column="label"), 4000)


def _listops(folder: Path | None) -> SequenceTask:
    return draw_listops(LISTOPS, (96_000, 2000, 2000), 0) if folder is None else read_listops(folder)


def _retrieval(folder: Path | None) -> SequenceTask:
    return manual_pairs(4000, 0) if folder is None else read_pairs(folder)


def _image(folder: Path | None) -> SequenceTask:
    return read_fashion() if folder is None else read_cifar10(folder)


def _pathfinder(folder: Path | None) -> SequenceTask:
    return draw_pathfinder((160_000, 20_000, 20_000), 0) if folder is None else read_pathfinder(folder)


_SMALL_ONE: Final = Protocol(2, 2, 64, 128, 128, 50_000, 32, 1e-4, 0.0)
_SHORT: Final = Protocol(2, 2, 64, 128, 64, 1000, 32, 2e-3, 0.1, dropout=0.0)
_SHORT_BYTES: Final = Protocol(2, 2, 64, 128, 64, 400, 16, 2e-3, 0.1, dropout=0.0)

SCALES: Final = {
    "small": Scale(
        {
            "listops, 24 to 128 tokens": (lambda _: draw_listops(LISTOPS_SHORT, (20_000, 1000, 2000), 0), _SHORT),
            "annual messages, 256 bytes": (lambda _: message_bytes(256, 0), _SHORT_BYTES),
        }
    ),
    "pytorch": Scale(
        {
            "listops": (_listops, _SMALL_ONE),
            "text": (_imdb, _SMALL_ONE),
            "retrieval": (_retrieval, Protocol(2, 2, 64, 128, 128, 50_000, 16, 2e-4, 0.0)),
            "image": (_image, Protocol(2, 2, 64, 128, 128, 50_000, 128, 1e-4, 0.0)),
            "pathfinder": (_pathfinder, Protocol(2, 2, 64, 128, 128, 50_000, 128, 2e-4, 0.0)),
        }
    ),
    "paper": Scale(
        {
            "listops": (_listops, Protocol(4, 8, 512, 1024, 128, 5000, 32, 5e-4, 0.2)),
            "text": (_imdb, Protocol(4, 4, 256, 1024, 128, 20_000, 32, 5e-4, 0.4)),
            "retrieval": (_retrieval, Protocol(4, 4, 128, 512, 64, 5000, 32, 5e-4, 0.4)),
            "image": (_image, Protocol(1, 8, 64, 128, 32, 35_000, 256, 5e-4, 0.0, dropout=0.3)),
            "pathfinder": (_pathfinder, Protocol(4, 4, 16, 32, 32, 62_500, 512, 1e-3, 0.0)),
        }
    ),
}
"""small: short stand-ins for one core, the encoder the small protocol's; pytorch: that protocol; paper: the arena's."""


def run_study(
    scale: Scale,
    seeds: int,
    kept: Rows,
    folder: Path,
    *,
    originals: Path | None = None,
    kernels: tuple[str, ...] = KERNELS,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train every kernel on every task, those of ``REPEATED`` with every seed, the others with seed 0.

    Args:
        folder: for checkpoints, from which an interrupted run goes on.
        originals: holds a folder for each task with the official files; None takes the stand-ins.

    Returns:
        {"settings", "seeds", "tasks": {name: {"majority", "sizes"}}, "machine", "versions", "runs": [{"task", "kernel",
        "seed", "test", "validation", "seconds", "curve"}]}.
    """
    tasks = {name: make(None if originals is None else originals / name) for name, (make, _) in scale.tasks.items()}
    # First those that are compared seed by seed.
    order = [(kernel, seed) for seed in range(seeds) for kernel in kernels if kernel in REPEATED]
    order += [(kernel, 0) for kernel in kernels if kernel not in REPEATED]
    wanted: dict[str, Callable[[], Mapping[str, Any]]] = {}
    for kernel, seed in order:
        for name, (_, protocol) in scale.tasks.items():
            key = f"{name}, {kernel}, seed {seed}"
            wanted[key] = partial(_run, name, tasks[name], protocol, kernel, seed, folder / key)
    runs = kept.get_all(wanted, say)
    return {
        "settings": scale_settings(scale),
        "seeds": seeds,
        "tasks": {
            name: {"majority": task.majority(), "sizes": [len(part.labels) for part in task[:3]]}
            for name, task in tasks.items()
        },
        **environment(),
        "runs": list(runs.values()),
    }


def scale_settings(scale: Scale) -> dict[str, Any]:
    """All of a scale, for JSON."""
    return {name: asdict(protocol) for name, (_, protocol) in scale.tasks.items()}


def build_encoder(task: SequenceTask, protocol: Protocol, kernel: str, seed: int) -> PreTrainedModel:
    """A fresh BERT with mean pooling, of two towers for pairs; all kernels of one seed share its other weights."""
    config = BertConfig(
        vocab_size=task.vocabulary,
        hidden_size=protocol.width,
        num_hidden_layers=protocol.num_layers,
        num_attention_heads=protocol.num_heads,
        intermediate_size=protocol.feed_forward,
        max_position_embeddings=task.max_length,
        hidden_dropout_prob=protocol.dropout,
        attention_probs_dropout_prob=0.0,
    )
    config.num_labels = task.classes
    paired = isinstance(task.train.inputs[0][0], list)
    with fresh_weights(seed):
        model = BertForMeanPairs(config) if paired else BertForMeanClassification(config)
    if kernel == "softmax":
        return model
    example = {"input_ids": torch.ones((1, 2, 2) if paired else (1, 2), dtype=torch.int64)}
    return convert(model, kernel, width_for(kernel, protocol.num_features), seed=seed, example=example)


def _run(name: str, task: SequenceTask, protocol: Protocol, kernel: str, seed: int, folder: Path) -> dict[str, Any]:
    model = build_encoder(task, protocol, kernel, seed)
    batches = SequenceBatches(task.train, protocol.batch_size, steps=protocol.steps, seed=seed)
    schedule = Schedule(
        steps=protocol.steps,
        learning_rate=protocol.learning_rate,
        kernel_learning_rate=kernel_rate(kernel, protocol.learning_rate),
        warmup=protocol.warmup,
        betas=(0.9, 0.98),
        max_grad_norm=1.0,
        seed=seed,
    )
    scores: list[float] = []

    def score(model: Any) -> float:
        scores.append(accuracy(model, task.validation))
        return scores[-1]

    begin = time.process_time()
    curve = train_classifier(
        model,
        batches,
        schedule,
        train_kernels=True,
        selection=Selection(score, max(1, protocol.steps // 5)),
        folder=folder,
    )
    seconds = time.process_time() - begin
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "task": name,
        "kernel": kernel,
        "seed": seed,
        "test": accuracy(model, task.test),
        "validation": scores,
        "seconds": seconds,
        "curve": curve,
    }


def lra_markdown(study: dict[str, Any]) -> str:
    """A row a kernel, best mean first: test accuracy in percent, ± over seeds where there are several."""
    tasks = list(study["tasks"])
    found: dict[str, list[list[float]]] = {}
    for kernel in dict.fromkeys(run["kernel"] for run in study["runs"]):
        found[kernel] = [
            [100 * run["test"] for run in study["runs"] if (run["kernel"], run["task"]) == (kernel, task)]
            for task in tasks
        ]
    header = ["kernel", *tasks, "mean", *(f"paper: {name}" for name in ("listops", "text"))]
    lines = []
    means = {kernel: statistics.fmean(map(statistics.fmean, cells)) for kernel, cells in found.items()}
    for kernel in sorted(found, key=lambda name: -means[name]):
        paper = [f"{PAPER[kernel][name]:.1f}" if kernel in PAPER else "" for name in ("listops", "text")]
        lines.append([kernel, *map(_cell, found[kernel]), f"{means[kernel]:.1f}", *paper])
    majority = [100 * study["tasks"][task]["majority"] for task in tasks]
    lines.append(["commonest class", *(f"{x:.1f}" for x in majority), f"{statistics.fmean(majority):.1f}", "", ""])
    return markdown_table(header, lines)


def _cell(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"
