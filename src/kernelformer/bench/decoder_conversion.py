"""Perplexity of a pretrained decoder whose first layers were converted: every kernel, alone and behind windows."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.drawing import standalone
from kernelformer.bench.environment import environment
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.plots import Banded, plot_bands
from kernelformer.bench.rows import Rows
from kernelformer.feature_maps import find_feature_map, width_for
from kernelformer.hf import convert
from kernelformer.learn import Schedule, distill, finetune, start_from_data
from kernelformer.learn.statistics import START_BATCHES
from kernelformer.learn.trainer import KERNEL_SHARE, Batch, wants_bfloat16
from kernelformer.tasks.batches import StepBatches, TokenisedTexts
from kernelformer.tasks.documents import LanguageTexts
from kernelformer.tasks.language import likelihood, recall, token_blocks

__all__ = [
    "KERNELS",
    "SCALES",
    "Cell",
    "ConversionRow",
    "ConversionScale",
    "conversion_cells",
    "conversion_markdown",
    "measure_conversions",
    "summarise_conversions",
    "trunk",
    "window_plots",
]

KERNELS: Final = ("constant", "random", "favor", "lfk", "hedgehog", "darkformer", "flexformer_n")
"""The first two are floors: nothing of them is learned or estimated."""

_DISTANCES: Final = (64, 256)
"""Tokens between a passage and its repetition, within and beyond the widest window."""


@dataclass(frozen=True)
class ConversionScale:
    """What one study converts, and its budgets.

    Attributes:
        layers: how many, from the first; None is all.
        num_features: of kernels whose width is free.
        length: tokens a block.
        batch_size: blocks a step.
        steps: of layer-wise distillation, and then of training all weights of the converted layers to the teacher's
            hidden states, the same number twice; the last is the full budget.
        windows: of hybrid attention.
        test_blocks: that perplexity is of, from the start of the test texts.
        learning_rate: of weights; kernels have their own, and a tenth of it in the second stage.
    """

    layers: int | None
    num_features: int
    length: int
    batch_size: int
    steps: tuple[int, ...]
    windows: tuple[int, ...]
    test_blocks: int
    learning_rate: float = 3e-4


SCALES: Final = {
    "small": ConversionScale(8, 64, 512, 1, (10, 40), (32, 64, 128), 12),
    "full": ConversionScale(None, 64, 1024, 8, (250, 1000, 4000), (32, 64, 128), 256),
}


class Cell(NamedTuple):
    """One conversion."""

    kernel: str
    window: int
    steps: int
    seed: int

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.kernel}, window {self.window}, {self.steps} steps, seed {self.seed}"


class ConversionRow(TypedDict):
    """Means and standard deviations over seeds. ratio: perplexity over the teacher's. recall: by distance."""

    kernel: str
    window: int
    steps: int
    seeds: int
    perplexity: float
    spread: float
    ratio: float
    accuracy: float
    recall: list[float]
    seconds: float


def conversion_cells(scale: ConversionScale, seeds: int) -> list[Cell]:
    """All conversions: every kernel alone, favor and darkformer with less steps, all but the floors with windows."""
    most, fewer = scale.steps[-1], scale.steps[:-1]
    cells = [
        *(Cell(kernel, 0, most, seed) for seed in range(seeds) for kernel in KERNELS),
        *(Cell(kernel, 0, n, seed) for n in fewer for seed in range(seeds) for kernel in ("favor", "darkformer")),
    ]
    return cells + [Cell(k, w, most, seed) for seed in range(seeds) for w in scale.windows for k in KERNELS[2:]]


def measure_conversions(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: LanguageTexts,
    scale: ConversionScale,
    seeds: int,
    rows: Rows,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Convert, distil, train and judge the teacher's copies, once a cell; finished rows are kept.

    Returns:
        The study: settings, the teacher's figures, and a figure for each cell.
    """
    train, test = (token_blocks(tokenizer, part, scale.length) for part in (texts.train, texts.test))
    test = test.first(scale.test_blocks)
    judged = rows.get("teacher", partial(_judge, teacher, test))
    cells = {cell.name: cell for cell in conversion_cells(scale, seeds)}
    run = partial(_run, teacher, tokenizer, train, test, scale)
    figures = rows.get_all({name: partial(run, cell) for name, cell in cells.items()}, say)
    found = [{**cell._asdict(), **figures[name]} for name, cell in cells.items()]
    return {"settings": asdict(scale), "seeds": seeds, "teacher": judged, "cells": found, **environment()}


def summarise_conversions(study: dict[str, Any]) -> list[ConversionRow]:
    """Means over seeds, in the order of the cells."""
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for cell in study["cells"]:
        groups.setdefault((cell["kernel"], cell["window"], cell["steps"]), []).append(cell)
    return [_row(key, cells, study["teacher"]["perplexity"]) for key, cells in groups.items()]


def conversion_markdown(study: dict[str, Any]) -> str:
    """One row a kernel, one column a window: perplexity over the teacher's, at the full budget; then the budgets."""
    rows = summarise_conversions(study)
    most, windows = study["settings"]["steps"][-1], [0, *study["settings"]["windows"]]
    found = {(row["kernel"], row["window"], row["steps"]): row for row in rows}
    header = ["kernel", *(f"window {w}" if w else "alone" for w in windows), "next token right, alone", "seconds"]
    lines = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        cells = [_ratio(study, found.get((kernel, window, most))) for window in windows]
        alone = found[kernel, windows[0], most]
        lines.append([kernel, *cells, f"{alone['accuracy']:.1%}", f"{alone['seconds']:.0f}"])
    return markdown_table(header, lines)


def window_plots(study: dict[str, Any]) -> dict[str, str]:
    """Perplexity over the teacher's against the window, bands of one standard deviation.

    Without a window it is so much larger that it would hide the rest.
    """
    most, windows = study["settings"]["steps"][-1], study["settings"]["windows"]
    found = {(row["kernel"], row["window"], row["steps"]): row for row in summarise_conversions(study)}
    teacher = study["teacher"]["perplexity"]
    lines: list[Banded] = []
    for kernel in KERNELS[2:]:
        rows = [found[kernel, window, most] for window in windows]
        lines.append((kernel, [(row["ratio"], row["spread"] / teacher) for row in rows]))
    return {"window": standalone(plot_bands(lines, [*map(str, windows)], "window", "perplexity over the teacher's"))}


def _ratio(study: dict[str, Any], row: ConversionRow | None) -> str:
    if row is None:
        return ""
    spread = f" ± {row['spread'] / study['teacher']['perplexity']:.3f}" if row["seeds"] > 1 else " (one seed)"
    return f"{row['ratio']:.3f}{spread}"


def trunk(model: PreTrainedModel, layers: int | None) -> PreTrainedModel:
    """The decoder below its head, cut behind its first layers, which it shares with ``model``.

    Whoever trains it trains the model, for a share of the cost. Its output is normalised, without weights.
    """
    base: Any = model.base_model
    if layers is None:
        whole: PreTrainedModel = base
        return whole
    short = copy.copy(base)
    short._modules = dict(base._modules)
    short.norm = nn.RMSNorm(base.config.hidden_size, eps=base.config.rms_norm_eps, elementwise_affine=False)
    short.layers = nn.ModuleList(list(base.layers)[:layers])
    short.config = copy.copy(base.config)
    short.config.num_hidden_layers = layers
    cut: PreTrainedModel = short
    return cut


def _run(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: TokenisedTexts,
    test: TokenisedTexts,
    scale: ConversionScale,
    cell: Cell,
) -> dict[str, Any]:
    def batches(steps: int, seed: int) -> StepBatches:
        return StepBatches(train, tokenizer, scale.batch_size, steps=steps, seed=seed)

    begin = time.perf_counter()
    width = width_for(cell.kernel, scale.num_features)
    layers = None if scale.layers is None else list(range(scale.layers))
    student = convert(copy.deepcopy(teacher), cell.kernel, width, layers, window=cell.window, seed=cell.seed)
    short = trunk(student, scale.layers)
    start_from_data(short, batches(START_BATCHES, cell.seed))
    rate = find_feature_map(cell.kernel).learning_rate
    schedule = Schedule(cell.steps, kernel_learning_rate=rate, seed=cell.seed)
    distill(short, batches(cell.steps, cell.seed), schedule)
    schedule = Schedule(cell.steps, scale.learning_rate, KERNEL_SHARE * rate, max_grad_norm=1.0, seed=cell.seed)
    finetune(short, trunk(teacher, scale.layers), batches(cell.steps, cell.seed + 1), schedule, objective=_last_state)
    return {"seconds": time.perf_counter() - begin, **_judge(student, test)}


def _last_state(teacher: nn.Module, student: nn.Module, batch: Batch) -> Tensor:
    """Mean over tokens of ‖h_s - h_t‖² / ‖h_t‖², h the normalised last hidden state.

    Each token counts alike: the first few of a decoder have norms a thousand times those of the rest.
    """
    with torch.no_grad():
        wanted = teacher(**batch, use_cache=False).last_hidden_state.float()
    found = student(**batch, use_cache=False).last_hidden_state.float()
    error: Tensor = ((found - wanted).square().sum(-1) / wanted.square().sum(-1)).mean()
    return error


def _judge(model: PreTrainedModel, test: TokenisedTexts) -> dict[str, Any]:
    with torch.autocast(model.device.type, torch.bfloat16, enabled=wants_bfloat16("auto")):
        found = likelihood(model, test, batch_size=2)
        remembered = recall(model, test, _DISTANCES, trials=8)
    return {**found, "recall": remembered["accuracy"]}


def _row(key: tuple[str, int, int], cells: Sequence[dict[str, Any]], teacher: float) -> ConversionRow:
    def mean(name: str) -> float:
        return statistics.fmean(cell[name] for cell in cells)

    perplexities = [cell["perplexity"] for cell in cells]
    return {
        "kernel": key[0],
        "window": key[1],
        "steps": key[2],
        "seeds": len(cells),
        "perplexity": mean("perplexity"),
        "spread": statistics.stdev(perplexities) if len(cells) > 1 else 0.0,
        "ratio": mean("perplexity") / teacher,
        "accuracy": mean("accuracy"),
        "recall": [statistics.fmean(values) for values in zip(*(cell["recall"] for cell in cells), strict=True)],
        "seconds": mean("seconds"),
    }
