"""Gradients of a block of causal attention, written out: no graph of its products is ever built."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernelformer.engine.causal import plan_scales, rows_from, times
from kernelformer.engine.chunks import Sums, chunks_backward, cut_chunks
from kernelformer.engine.state import State, divisor
from kernelformer.features import Features

__all__ = ["Block", "BlockGrads", "block_backward"]


class BlockGrads(NamedTuple):
    """Gradients for values and log_scale of the features, for v, and for the sums before the block."""

    q: Tensor
    k: Tensor
    log_scale: Tensor
    v: Tensor
    sums: Sums


class Block(NamedTuple):
    """What a block of whole chunks was given, and its output [B, Hq, N, Dv]."""

    q: Features
    k: Features
    v: Tensor
    state: State
    out: Tensor


def block_backward(block: Block, d_out: Tensor, d_after: Sums, *, floor: float, chunk_size: int) -> BlockGrads:
    """From the gradients of the output and of the sums after the block to those of all that went in."""
    q, k, v, state, _ = block
    plan = plan_scales(k, state)
    cut = [cut_chunks(q.values, k.values, weights, v, chunk_size) for _, _, weights in plan.parts]
    before = [times(state[:3], factor) for _, factor, _ in plan.parts]
    starts = [start for start, _, _ in plan.parts]
    rows: list[tuple[Tensor, tuple[Tensor, ...]]] = [
        (start, (chunks.in_order(chunks.denominators(sums), sums), chunks.masses(sums)))
        for start, chunks, sums in zip(starts, cut, before, strict=True)
    ]
    d_rows = _d_rows(block.out, rows_from(rows), d_out.to(v.dtype), floor)
    found = []
    for i, (_, factor, weights) in enumerate(plan.parts):
        is_last = i == len(cut) - 1
        mine = d_rows if len(cut) == 1 else _between(d_rows, starts[i], None if is_last else starts[i + 1])
        ahead = times(d_after, plan.rest if is_last else torch.zeros_like(plan.rest))
        grads = chunks_backward(cut[i], before[i], mine, ahead)
        found.append(BlockGrads(grads.q, grads.k, grads.weights * weights, grads.v, times(grads.sums, factor)))
    total = found[0]
    for other in found[1:]:
        total = _plus(total, other)
    return total


def _plus(a: BlockGrads, b: BlockGrads) -> BlockGrads:
    sums = (a.sums[0] + b.sums[0], a.sums[1] + b.sums[1], a.sums[2] + b.sums[2])
    return BlockGrads(a.q + b.q, a.k + b.k, a.log_scale + b.log_scale, a.v + b.v, sums)


def _d_rows(out: Tensor, below: tuple[Tensor, ...], d_out: Tensor, floor: float) -> Sums:
    """Gradients of numerator, denominator and mass, from those of their ratio; ``below`` is the latter two."""
    den, mass = below
    divided_by, floored = divisor(den, mass, floor)
    shape = (*den.shape, out.shape[-1])
    d_num = d_out.reshape(shape) / divided_by[..., None]
    d_divisor = -(d_num * out.to(d_num.dtype).reshape(shape)).sum(-1)
    return d_num, torch.where(floored, 0.0, d_divisor), torch.where(floored, floor * d_divisor, 0.0)


def _between(d_rows: Sums, start: Tensor, stop: Tensor | None) -> Sums:
    """Rows from ``start`` [B, H] up to ``stop`` alone."""
    row = torch.arange(d_rows[1].shape[3], device=start.device)
    mine = row >= start[..., None]
    if stop is not None:
        mine = mine & (row < stop[..., None])
    mine = mine[:, :, None]
    d_num, d_den, d_mass = d_rows
    return d_num * mine[..., None], d_den * mine, d_mass * mine
