"""Causal attention without a look at any value: for torch.compile, torch.func, accelerators, and gated maps.

Each row has its running maximum m_t = max_{j <= t} log_scale_j as reference, at the price of C × C exponentials in each
chunk of C tokens. All chunks are taken at once but for a short loop over their sums, which a compiler unrolls.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernelformer.engine.rows import cut, join, whole_and_rest
from kernelformer.engine.state import Attended, State, normalise
from kernelformer.features import Features

__all__ = ["attend_pairwise", "decayed", "pairwise_size"]


def attend_pairwise(
    q: Features, k: Features, v: Tensor, state: State, *, floor: float = 0.0, chunk_size: int
) -> tuple[Attended, State]:
    """The sums of ``attend_causal``, in chunks of this size."""
    parts = []
    for rows, size in whole_and_rest(k.values.shape[2], chunk_size):
        part, state = _attend_chunks(cut(q, rows), cut(k, rows), v[:, :, rows], state, floor, size)
        parts.append(part)
    return join(parts, q, k, v), state


def pairwise_size(length: int) -> int:
    """A chunk size for which neither the loop over chunks nor the C × C weights grow out of hand."""
    return min(max(64, -(-length // 128)), 256)


def decayed(state: State, log_decay: Tensor) -> State:
    """The state times exp(log_decay) [B, H]: its reference moves, its sums carry the gradient."""
    constant = log_decay.detach()
    sums = state[:3]
    if log_decay.requires_grad:
        factor = torch.exp(log_decay - constant)
        sums = (state.kv * factor[..., None, None], state.k_sum * factor[..., None], state.mass * factor)
    return State(*sums, state.log_max + constant, state.length)


class _Scales(NamedTuple):
    """Weights exp(log_scale_j - m_t) [B, H, chunks, C, C], what is left of the sums before the chunk at row t
    [B, H, chunks, C], the factor [B, H, chunks] of a decay after the chunk (1, but for the gradient), and the
    reference after all [B, H]."""

    weights: Tensor
    left: Tensor
    factor: Tensor | None
    log_max: Tensor


def _attend_chunks(
    q: Features, k: Features, v: Tensor, state: State, floor: float, size: int
) -> tuple[Attended, State]:
    batch, heads, length, width = k.values.shape
    chunks = length // size
    # [B, H, chunks, G C, M]
    rows = q.values.reshape(batch, heads, -1, chunks, size, width).transpose(2, 3)
    groups = rows.shape[3]
    rows = rows.flatten(3, 4)
    keys, values = (x.unflatten(2, (chunks, size)) for x in (k.values, v))
    scales = _scales(k, state, chunks)
    last = keys * scales.weights[..., -1, :, None]
    added = torch.cat([last.transpose(-1, -2) @ values, last.sum(-2)[..., None]], dim=-1)
    sums, after = _sums_before(torch.cat([state.kv, state.k_sum[..., None]], dim=-1), added, scales)
    mass, last_mass = _sums_before(state.mass[..., None, None], scales.weights[..., -1:, :].sum(-1, True), scales)
    kernel = (rows @ keys.transpose(-1, -2)).unflatten(3, (groups, size)) * scales.weights[:, :, :, None]
    left = scales.left[:, :, :, None]
    past = (rows @ sums).unflatten(3, (groups, size)) * left[..., None]
    num = (kernel.flatten(3, 4) @ values).unflatten(3, (groups, size)) + past[..., :-1]
    den = kernel.sum(-1) + past[..., -1]
    mass = scales.weights.sum(-1) + mass[..., 0] * scales.left
    out, floored = (x.transpose(2, 3) for x in normalise(num, den, mass[:, :, :, None], floor))
    shape = q.values.shape[:-1]
    attended = Attended(out.reshape(*shape, v.shape[-1]), floored.reshape(shape))
    return attended, State(after[..., :-1], after[..., -1], last_mass[..., 0, 0], scales.log_max, state.length + length)


def _scales(k: Features, state: State, chunks: int) -> _Scales:
    log_scale = torch.zeros_like(k.values[..., 0]) if k.log_scale is None else k.log_scale
    log_scale = log_scale.unflatten(2, (chunks, -1))
    factor, moved = None, None
    if k.log_decay is not None:
        # Row t weighs key j by exp(c_t - c_j), c the running sum of log_decay; c_t cancels in the ratio.
        log_decay = k.log_decay.unflatten(2, (chunks, -1))
        log_scale = log_scale - log_decay.cumsum(-1)
        total = log_decay.sum(-1)
        moved = total.detach()
        factor = torch.exp(total - moved)
    tops = log_scale.detach().amax(-1)
    before, log_max = _references(tops, moved, state.log_max)
    top = torch.maximum(log_scale.detach().cummax(-1).values, before[..., None])
    finite = torch.where(top.isinf(), 0.0, top)
    size = log_scale.shape[-1]
    later = torch.ones(size, size, dtype=torch.bool, device=log_scale.device).triu(1)
    weights = torch.exp((log_scale[..., None, :] - finite[..., None]).masked_fill(later, -torch.inf))
    return _Scales(weights, torch.exp(before[..., None] - finite), factor, log_max)


def _references(tops: Tensor, moved: Tensor | None, first: Tensor) -> tuple[Tensor, Tensor]:
    """The reference before each chunk [B, H, chunks], given its largest log_scale, and that after all."""
    if moved is None:
        running = torch.cat([first[..., None], tops], dim=-1).cummax(-1).values
        return running[..., :-1], running[..., -1]
    found = [first]
    for top, move in zip(tops.unbind(-1), moved.unbind(-1), strict=True):
        found.append(torch.maximum(found[-1], top) + move)
    return torch.stack(found[:-1], dim=-1), found[-1]


def _sums_before(first: Tensor, added: Tensor, scales: _Scales) -> tuple[Tensor, Tensor]:
    """Sums [B, H, chunks, ...] before each chunk, of what each adds, and those after all."""
    left = scales.left[..., -1]
    if scales.factor is not None:
        left, added = left * scales.factor, added * scales.factor[..., None, None]
    found = [first]
    for part, rest in zip(added.unbind(2), left.unbind(2), strict=True):
        found.append(found[-1] * rest[..., None, None] + part)
    return torch.stack(found[:-1], dim=2), found[-1]
