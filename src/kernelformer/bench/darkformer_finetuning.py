"""DARKFormer's claims for fine-tuning: fewer steps than FAVOR+ to a loss, fewer spikes, a smaller gap to softmax.

A pretrained decoder is converted, its kernels start from the data, and it learns the next token, with no teacher.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.environment import environment
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.rows import Rows
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import find_feature_map
from kernelformer.hf import convert
from kernelformer.learn import Schedule, finetune, start_from_data
from kernelformer.learn.statistics import START_BATCHES
from kernelformer.learn.trainer import KERNEL_SHARE, Batch, wants_bfloat16
from kernelformer.tasks.batches import StepBatches, TokenisedTexts
from kernelformer.tasks.documents import LanguageTexts
from kernelformer.tasks.language import likelihood, token_blocks

__all__ = [
    "SCALES",
    "FinetuningScale",
    "Run",
    "closed_gap",
    "count_spikes",
    "finetuning_markdown",
    "finetuning_runs",
    "measure_finetuning",
    "spikes_of",
    "steps_to",
]

_SMOOTH: Final = 8
_SPIKE: Final = 1.0
_BEFORE: Final = 8


@dataclass(frozen=True)
class FinetuningScale:
    """What one study trains.

    Attributes:
        layers: how many are converted, from the first; None converts all.
        num_features: M of most runs; ``widths`` are those of the sweep.
        length, batch_size: of the blocks of a step.
        steps: of fine-tuning; ``sweep_steps`` for each learning rate of the sweep.
        learning_rate: of weights; ``factors`` multiply it, and kernels' rates with it.
        test_blocks: that the held-out loss is of.
    """

    layers: int | None
    num_features: int
    widths: tuple[int, ...]
    length: int
    batch_size: int
    steps: int
    sweep_steps: int
    learning_rate: float
    factors: tuple[int, ...]
    test_blocks: int


SCALES: Final = {
    "small": FinetuningScale(8, 64, (32, 256), 256, 1, 30, 24, 1e-4, (10, 30), 12),
    "full": FinetuningScale(None, 64, (32, 128, 256), 1024, 8, 2000, 500, 1e-4, (3, 10, 30), 256),
}


class Run(NamedTuple):
    """One fine-tuning. kernel "softmax" is the model as it is; mode "all" or "qkv" (with kernels' parameters)."""

    kernel: str
    mode: str
    num_features: int
    factor: int
    seed: int

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.kernel}, {self.mode}, M = {self.num_features}, rate × {self.factor}, seed {self.seed}"


def finetuning_runs(scale: FinetuningScale, seeds: int) -> list[Run]:
    """Both modes with softmax, then the sweep over learning rates, then that over widths."""
    width, pair, every = scale.num_features, ("favor", "darkformer"), range(seeds)
    return [
        *(Run(k, mode, width, 1, s) for s in every for mode in ("all", "qkv") for k in ("softmax", *pair)),
        *(Run(k, "all", width, factor, s) for s in every for factor in scale.factors for k in pair),
        *(Run(k, "qkv", m, 1, s) for s in every for m in scale.widths for k in pair),
    ]


def measure_finetuning(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: LanguageTexts,
    scale: FinetuningScale,
    seeds: int,
    rows: Rows,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Fine-tune copies of ``model``, once a run; finished rows are kept."""
    train, test = (token_blocks(tokenizer, part, scale.length) for part in (texts.train, texts.test))
    test = test.first(scale.test_blocks)
    runs = {run.name: run for run in finetuning_runs(scale, seeds)}
    measure = partial(_run, model, tokenizer, train, test, scale)
    figures = rows.get_all({name: partial(measure, run) for name, run in runs.items()}, say)
    found = [{**run._asdict(), **figures[name]} for name, run in runs.items()]
    return {"settings": asdict(scale), "seeds": seeds, "runs": found, **environment()}


def count_spikes(losses: Sequence[float]) -> int:
    """Steps whose loss lies a nat above the median of the 8 before, or is not finite."""
    spikes = 0
    for step in range(_BEFORE, len(losses)):
        before = statistics.median(losses[step - _BEFORE : step])
        spikes += not math.isfinite(losses[step]) or losses[step] > before + _SPIKE
    return spikes


def steps_to(losses: Sequence[float], wanted: float) -> int | None:
    """Steps until the mean loss of eight in a row is as low as ``wanted``; None if it never is."""
    for step in range(_SMOOTH, len(losses) + 1):
        if statistics.fmean(losses[step - _SMOOTH : step]) <= wanted:
            return step
    return None


def finetuning_markdown(study: dict[str, Any]) -> str:
    """Three tables: both modes, learning rates, widths."""
    return "\n\n".join([_modes(study), _rates(study), _widths(study)])


def _run(
    pretrained: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: TokenisedTexts,
    test: TokenisedTexts,
    scale: FinetuningScale,
    run: Run,
) -> dict[str, Any]:
    def batches(steps: int, seed: int) -> StepBatches:
        return StepBatches(train, tokenizer, scale.batch_size, steps=steps, seed=seed)

    model, kernel_rate = copy.deepcopy(pretrained), 0.0
    if run.kernel != "softmax":
        layers = None if scale.layers is None else list(range(scale.layers))
        convert(model, run.kernel, run.num_features, layers, seed=run.seed)
        start_from_data(model, batches(START_BATCHES, run.seed))
        kernel_rate = KERNEL_SHARE * run.factor * find_feature_map(run.kernel).learning_rate
    steps = scale.steps if run.factor == 1 else scale.sweep_steps
    schedule = Schedule(steps, run.factor * scale.learning_rate, kernel_rate, seed=run.seed)
    losses: list[float] = []

    def next_token(_: nn.Module, model: nn.Module, batch: Batch) -> Tensor:
        loss: Tensor = model(**batch, labels=batch["input_ids"], use_cache=False).loss
        losses.append(float(loss.detach()))
        return loss

    finetune(model, model, batches(steps, run.seed), schedule, mode=run.mode, objective=next_token)
    return {"losses": losses, "test_loss": _test_loss(model, test)}


def _test_loss(model: PreTrainedModel, test: TokenisedTexts) -> float | None:
    """Nats a token; None of a model that has diverged."""
    try:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=wants_bfloat16("auto")):
            return math.log(likelihood(model, test, batch_size=4)["perplexity"])
    except (KernelformerError, OverflowError):
        return None


def closed_gap(study: dict[str, Any], mode: str) -> float:
    """Share of the held-out loss between favor and softmax that darkformer closes, means over seeds."""
    width = study["settings"]["num_features"]
    losses = (_losses(study, kernel, mode, width, 1) for kernel in ("softmax", "favor", "darkformer"))
    exact, favor, dark = map(statistics.fmean, losses)
    return (favor - dark) / (favor - exact)


def spikes_of(study: dict[str, Any], kernel: str, factor: int) -> tuple[int, int]:
    """Spikes, and the steps that could be one, of all seeds at that multiple of the learning rate."""
    found = _chosen(study, kernel, "all", study["settings"]["num_features"], factor)
    return sum(count_spikes(run["losses"]) for run in found), sum(len(run["losses"]) - _BEFORE for run in found)


def _modes(study: dict[str, Any]) -> str:
    width = study["settings"]["num_features"]
    rows = [
        [
            name,
            *(_spread(_losses(study, kernel, mode, width, 1)) for kernel in ("softmax", "favor", "darkformer")),
            f"{closed_gap(study, mode):.0%}",
            f"{_reached(study, mode, width)} of {study['settings']['steps']}",
        ]
        for mode, name in (("all", "all weights"), ("qkv", "q, k, v and kernels"))
    ]
    header = ["trained", "softmax", "favor", "darkformer", "gap closed", "darkformer's steps to favor's last loss"]
    return markdown_table(header, rows)


def _rates(study: dict[str, Any]) -> str:
    width = study["settings"]["num_features"]
    rows = []
    for factor in (1, *study["settings"]["factors"]):
        cells = [f"× {factor}"]
        for kernel in ("favor", "darkformer"):
            spikes, steps = spikes_of(study, kernel, factor)
            cells += [f"{spikes} in {steps} steps", _spread(_losses(study, kernel, "all", width, factor))]
        rows.append(cells)
    return markdown_table(["learning rate", "favor: spikes", "loss", "darkformer: spikes", "loss"], rows)


def _widths(study: dict[str, Any]) -> str:
    widths = sorted({*study["settings"]["widths"], study["settings"]["num_features"]})
    rows = [
        [str(m), *(_spread(_losses(study, kernel, "qkv", m, 1)) for kernel in ("favor", "darkformer"))] for m in widths
    ]
    return markdown_table(["features", "favor", "darkformer"], rows)


def _reached(study: dict[str, Any], mode: str, width: int) -> str:
    """Per seed, the steps darkformer needs to favor's last loss."""
    found = []
    for favor, dark in zip(*(_chosen(study, k, mode, width, 1) for k in ("favor", "darkformer")), strict=True):
        found.append(steps_to(dark["losses"], statistics.fmean(favor["losses"][-_SMOOTH:])))
    return ", ".join("never" if step is None else str(step) for step in found)


def _chosen(study: dict[str, Any], kernel: str, mode: str, width: int, factor: int) -> list[dict[str, Any]]:
    wanted = (kernel, mode, width, factor)
    names = ("kernel", "mode", "num_features", "factor")
    return [run for run in study["runs"] if tuple(run[name] for name in names) == wanted]


def _losses(study: dict[str, Any], kernel: str, mode: str, width: int, factor: int) -> list[float]:
    runs = _chosen(study, kernel, mode, width, factor)
    return [math.inf if run["test_loss"] is None else run["test_loss"] for run in runs]


def _spread(values: Sequence[float]) -> str:
    if not all(map(math.isfinite, values)):
        return "diverged"
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"
