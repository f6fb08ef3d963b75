"""Time of attention with particles that were moved and with those that were not, against the length."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypedDict

import torch
from torch import Tensor

from kernelformer.attention import KernelAttention
from kernelformer.bench.coulomb_text import ROWS
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.rows import Rows
from kernelformer.feature_maps import FEATURE_MAPS
from kernelformer.features import ProjectedFeatureMap
from kernelformer.learn.energy import Riesz
from kernelformer.learn.langevin import Ball, Dynamics, Langevin

__all__ = ["LENGTHS", "TimeRow", "measure_times", "times_markdown"]

LENGTHS: Final = (1024, 2048, 4096, 8192)

# The paper's: two heads of width 64, 256 features a head.
_HEADS, _HEAD_DIM, _FEATURES = 2, 64, 256


class TimeRow(TypedDict):
    """Medians at each length, ms; the median over all turns of learned / vanilla; the slope of log time on log N."""

    kernel: str
    lengths: list[int]
    vanilla_ms: list[float]
    learned_ms: list[float]
    ratio: float
    slope: float


@torch.no_grad()
def measure_times(
    repeats: int, kept: Rows, lengths: Sequence[int] = LENGTHS, say: Callable[[str], None] = lambda _: None
) -> list[TimeRow]:
    """Both members of each pair in turns, without gradients, float32, batch 1."""
    wanted = {row.kernel: partial(_row, row.kernel, repeats, lengths) for row in ROWS if row.aligned}
    return list(kept.get_all(wanted, say).values())


def _row(kernel: str, repeats: int, lengths: Sequence[int]) -> TimeRow:
    vanilla = KernelAttention(_feature_map(kernel), below_crossover="ignore").eval()
    learned = copy.deepcopy(vanilla)
    _move(learned)
    times: list[list[list[float]]] = []
    for length in lengths:
        q = torch.randn(1, _HEADS, length, _HEAD_DIM, generator=torch.Generator().manual_seed(length))
        times.append(_in_turns([vanilla, learned], q, repeats))
    medians = [[statistics.median(times[i][side]) for i in range(len(lengths))] for side in (0, 1)]
    ratios = [second / first for spent in times for first, second in zip(*spent, strict=True)]
    return {
        "kernel": kernel,
        "lengths": list(lengths),
        "vanilla_ms": medians[0],
        "learned_ms": medians[1],
        "ratio": statistics.median(ratios),
        "slope": _slope(lengths, medians[1]),
    }


def times_markdown(rows: Sequence[TimeRow]) -> str:
    """A row a kernel: the ratio, the slope, and times at each length."""
    header = ["kernel", "learned / vanilla", "slope", *(f"N = {length:,}, ms" for length in rows[0]["lengths"])]
    lines = []
    for row in rows:
        times = [f"{value:.2f}" for value in row["learned_ms"]]
        lines.append([f"`{row['kernel']}`", f"{row['ratio']:.3f}", f"{row['slope']:.2f}", *times])
    return markdown_table(header, lines)


def _feature_map(kernel: str) -> ProjectedFeatureMap:
    kind = FEATURE_MAPS[kernel]
    feature_map = kind(_HEAD_DIM, _HEADS, _FEATURES)
    assert isinstance(feature_map, ProjectedFeatureMap)
    return feature_map


def _move(attention: KernelAttention) -> None:
    """As learning would: by Langevin dynamics, here of repulsion and noise alone, since no label changes the time."""
    feature_map = attention.feature_map
    assert isinstance(feature_map, ProjectedFeatureMap)
    dynamics = Dynamics(0.1, inverse_temperature=10.0, repulsion=Riesz(), domain=Ball(12.0))
    moved = Langevin(feature_map.omega.mT, lambda x, _: -0.1 * x, dynamics, torch.Generator().manual_seed(0))
    moved.run(10)
    feature_map.omega.copy_(moved.particles.mT)


def _in_turns(calls: Sequence[KernelAttention], q: Tensor, repeats: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        # The order changes from turn to turn, so that neither always comes second; the first turn warms up.
        order = range(len(calls)) if turn % 2 else reversed(range(len(calls)))
        for side in order:
            begin = time.perf_counter()
            calls[side](q, q, q)
            if turn:
                times[side].append(1000.0 * (time.perf_counter() - begin))
    return times


def _slope(lengths: Sequence[int], times: Sequence[float]) -> float:
    return statistics.linear_regression([math.log(x) for x in lengths], [math.log(y) for y in times]).slope
