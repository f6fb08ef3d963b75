"""Time of softmax against kernel attention by sequence length, and the length from which the kernel wins.

Runs on the CPU, batch 1, without gradients, with as many threads as torch is set to. Softmax is
``scaled_dot_product_attention``, which on the CPU, too, never writes out the N × N weights.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, TypedDict

import torch
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel

from kernelformer.bench.crossover import measured_crossover
from kernelformer.bench.spec import AttentionSpec, draw_qkv, draw_tokens
from kernelformer.errors import KernelformerError

__all__ = ["LENGTHS", "Timing", "crossover", "lengths_up_to", "time_attention", "time_models"]

LENGTHS: Final = (128, 256, 512, 1024, 2048, 4096, 8192)

_LEAST_REPEATS: Final = 3
_MOST_REPEATS: Final = 50


class Timing(TypedDict):
    """One length: median milliseconds of each side, their quartiles and the number of calls behind them."""

    length: int
    softmax_ms: float
    kernel_ms: float
    softmax_quartiles: tuple[float, float]
    kernel_quartiles: tuple[float, float]
    softmax_repeats: int
    kernel_repeats: int


@torch.no_grad()
def time_attention(
    spec: AttentionSpec, *, lengths: Sequence[int] = LENGTHS, seconds: float = 30.0, seed: int = 0
) -> list[Timing]:
    """Time one attention layer of this shape, softmax and kernel taking turns.

    Args:
        lengths: N, ascending.
        seconds: what all lengths together may take, roughly; it sets the number of calls.
        seed: of q, k, v and the map.
    """
    attention = spec.build(seed)

    def pair(length: int) -> tuple[Callable[[], object], Callable[[], object]]:
        q, k, v = draw_qkv(spec, length, seed)
        return (lambda: F.scaled_dot_product_attention(q, k, v)), (lambda: attention(q, k, v))

    return _time_pairs(pair, lengths, seconds, "time attention")


@torch.no_grad()
def time_models(
    teacher: PreTrainedModel,
    student: PreTrainedModel,
    *,
    lengths: Sequence[int] | None = None,
    seconds: float = 10.0,
    seed: int = 0,
) -> list[Timing]:
    """Time whole models on one text of random tokens, up to the number of positions they know.

    Both run in evaluation mode and get their mode back.

    Raises:
        KernelformerError: a length above the teacher's positions.
    """
    positions = int(teacher.config.max_position_embeddings)
    chosen = lengths_up_to(positions) if lengths is None else tuple(lengths)
    if max(chosen) > positions:
        raise KernelformerError(f"the teacher knows {positions} positions, got a length of {max(chosen)}")
    modes = [(model, model.training) for model in (teacher, student)]

    def pair(length: int) -> tuple[Callable[[], object], Callable[[], object]]:
        ids = draw_tokens(int(teacher.config.vocab_size), length, seed)
        mask = torch.ones_like(ids)
        return (
            lambda: teacher(input_ids=ids, attention_mask=mask),
            lambda: student(input_ids=ids, attention_mask=mask),
        )

    try:
        for model, _ in modes:
            model.train(False)
        return _time_pairs(pair, chosen, seconds, "time models")
    finally:
        for model, was_training in modes:
            model.train(was_training)


def lengths_up_to(most: int) -> tuple[int, ...]:
    """Powers of two from 128 (from 16 if there is no room) to ``most``, at most 8,192."""
    lengths = tuple(length for length in LENGTHS if length <= most)
    return lengths or tuple(length for length in (16, 32, 64) if length <= most) or (most,)


def crossover(timings: Sequence[Timing]) -> float | None:
    """The length from which the kernel is faster than softmax, see ``measured_crossover``."""
    return measured_crossover([(row["length"], row["softmax_ms"], row["kernel_ms"]) for row in timings])


def _time_pairs(
    pair: Callable[[int], tuple[Callable[[], object], Callable[[], object]]],
    lengths: Sequence[int],
    seconds: float,
    title: str,
) -> list[Timing]:
    share = seconds / (2 * len(lengths))
    progress = tqdm(lengths, desc=title, unit="length", leave=False, disable=not sys.stderr.isatty())
    return [_time_pair(length, *pair(length), share) for length in progress]


def _time_pair(length: int, softmax: Callable[[], object], kernel: Callable[[], object], seconds: float) -> Timing:
    counts = [_repeats(call, seconds) for call in (softmax, kernel)]
    times: tuple[list[float], list[float]] = ([], [])
    deadline = time.perf_counter() + 4 * seconds
    # In turns, so that whatever else the machine does meets both alike.
    for turn in range(max(counts)):
        # A busy machine can make calls far slower than the two that set the counts.
        if turn > 0 and time.perf_counter() > deadline:
            break
        for call, count, spent in zip((softmax, kernel), counts, times, strict=True):
            if turn < count:
                spent.append(_milliseconds(call))
    return {
        "length": length,
        "softmax_ms": statistics.median(times[0]),
        "kernel_ms": statistics.median(times[1]),
        "softmax_quartiles": _quartiles(times[0]),
        "kernel_quartiles": _quartiles(times[1]),
        "softmax_repeats": len(times[0]),
        "kernel_repeats": len(times[1]),
    }


def _repeats(call: Callable[[], object], seconds: float) -> int:
    """How many calls fit into that time, by the faster of two that also warm up."""
    spent = min(_milliseconds(call), _milliseconds(call)) / 1000
    least = 1 if spent > 1.5 * seconds else _LEAST_REPEATS
    return min(max(int(seconds / max(spent, sys.float_info.min)), least), _MOST_REPEATS)


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def _quartiles(times: Sequence[float]) -> tuple[float, float]:
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, high
