"""Row t sees keys up to t: chunks along the sequence, a running maximum per row, one state.

No scale is shared between a row and a later key, so changing a key changes no bit of an earlier
output. The running maximum m_t = max_{j <= t} log_scale_j cancels in the ratio; it is a constant
to the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.engine.state import Attended, State, empty_state, normalise
from kernelformer.features import Features

__all__ = ["CHUNK_SIZE", "attend_causal", "attend_step"]

CHUNK_SIZE = 64


def attend_causal(
    q: Features, k: Features, v: Tensor, *, floor: float = 0.0, state: State | None = None, chunk_size: int = CHUNK_SIZE
) -> tuple[Attended, State]:
    """Causal attention over a segment that follows ``state``; O(N) time.

    Shape:
        q.values [B, Hq, N, M]; k.values [B, H, N, M] with Hq a multiple of H; v [B, H, N, Dv].
        N may be 0 or 1. The state is never changed in place.
    """
    batch, heads, length, width = k.values.shape
    if state is None:
        state = empty_state(batch, heads, width, v.shape[-1], k.values.dtype, v.device)
    parts = []
    for start in range(0, length, chunk_size):
        rows = slice(start, min(start + chunk_size, length))
        part, state = _attend_chunk(_cut(q, rows), _cut(k, rows), v[:, :, rows], state, floor)
        parts.append(part)
    if not parts:
        empty = q.values.sum(-1)
        return Attended(q.values.new_zeros(*empty.shape, v.shape[-1]), empty.bool()), state
    return Attended(*(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))), state


def attend_step(q: Features, k: Features, v: Tensor, state: State, *, floor: float = 0.0) -> tuple[Attended, State]:
    """One token after ``state``: O(M · Dv), whatever the length seen. All lengths are 1."""
    batch, heads, _, width = k.values.shape
    rows = q.values.reshape(batch, heads, -1, width)
    log_scale = torch.zeros_like(state.log_max) if k.log_scale is None else k.log_scale[..., 0]
    log_max = torch.maximum(state.log_max, log_scale).detach()
    finite = torch.where(log_max.isinf(), 0.0, log_max)
    decay, weight = torch.exp(state.log_max - finite), torch.exp(log_scale - finite)
    key = k.values[..., 0, :] * weight[..., None]
    kv = state.kv * decay[..., None, None] + key[..., None] * v
    k_sum = state.k_sum * decay[..., None] + key
    mass = state.mass * decay + weight
    out, floored = normalise(rows @ kv, (rows @ k_sum[..., None])[..., 0], mass[..., None], floor)
    shape = q.values.shape[:-1]
    attended = Attended(out.reshape(*shape, v.shape[-1]), floored.reshape(shape))
    return attended, State(kv, k_sum, mass, log_max, state.length + 1)


def _attend_chunk(q: Features, k: Features, v: Tensor, state: State, floor: float) -> tuple[Attended, State]:
    batch, heads, length, width = k.values.shape
    grouped = q.values.reshape(batch, heads, -1, length, width)
    rows = grouped.flatten(2, 3)
    weights, decay, log_max = _chunk_weights(k, state)
    kernel = (rows @ k.values.transpose(-1, -2)).unflatten(2, (-1, length)) * weights[:, :, None]
    num = kernel.flatten(2, 3) @ v
    before = decay[:, :, None, :]
    num = num.unflatten(2, (-1, length)) + (rows @ state.kv).unflatten(2, (-1, length)) * before[..., None]
    den = kernel.sum(-1) + (rows @ state.k_sum[..., None])[..., 0].unflatten(2, (-1, length)) * before
    mass = weights.sum(-1) + state.mass[..., None] * decay
    out, floored = normalise(num, den, mass[:, :, None], floor)
    shape = q.values.shape[:-1]
    last, key = decay[..., -1], k.values * weights[..., -1, :, None]
    after = State(
        state.kv * last[..., None, None] + key.transpose(-1, -2) @ v,
        state.k_sum * last[..., None] + key.sum(-2),
        mass[..., -1],
        log_max,
        state.length + length,
    )
    return Attended(out.reshape(*shape, v.shape[-1]), floored.reshape(shape)), after


def _chunk_weights(k: Features, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Weights exp(log_scale_j - m_t) [B, H, C, C], what is left of the state at row t, the new maximum."""
    length = k.values.shape[2]
    log_scale = torch.zeros_like(k.values[..., 0]) if k.log_scale is None else k.log_scale
    top = torch.maximum(log_scale.detach().cummax(-1).values, state.log_max[..., None])
    finite = torch.where(top.isinf(), 0.0, top)[..., None]
    later = torch.ones(length, length, dtype=torch.bool, device=log_scale.device).triu(1)
    weights = torch.exp((log_scale[..., None, :] - finite).masked_fill(later, -torch.inf))
    return weights, torch.exp(state.log_max[..., None] - finite[..., 0]), top[..., -1]


def _cut(features: Features, rows: slice) -> Features:
    log_scale = features.log_scale
    return Features(features.values[:, :, rows], None if log_scale is None else log_scale[:, :, rows])
