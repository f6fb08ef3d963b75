"""Exact softmax over the last ``window`` tokens, the kernel for everything before, under one normaliser.

Row i weighs key j by exp(q_i·k_j) if j > i - window, else by exp(log_mix)·k(q_i, k_j). Two things that cancel
elsewhere count here, since the two parts must be of one scale: the query's own log_scale, and the kernel's constant.
The first is carried; the second is ``log_mix``, learned per head, because most kernels fix it nowhere (Hedgehog's is
softmax's times any number). With log_mix = 0 and a kernel that is softmax's, the whole is softmax attention.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kernelformer.engine.bidirectional import fold_keys
from kernelformer.engine.blockwise import Sequence, blocks, cut_all, empty_sums
from kernelformer.engine.rows import cut
from kernelformer.engine.state import Attended, State, normalise
from kernelformer.features import FeatureMap, Features, softmax_scale

__all__ = ["HybridState", "attend_hybrid", "empty_hybrid"]

_CHUNK_SIZE = 64


class HybridState(NamedTuple):
    """The sums over all tokens but the last ``window``, and those as they came.

    Shape:
        near_k [B, H, W', D], near_v [B, H, W', Dv], near_mask bool [B, W'], W' = min(window, tokens seen).
    """

    far: State
    near_k: Tensor
    near_v: Tensor
    near_mask: Tensor

    @property
    def length(self) -> Tensor:
        """Tokens seen."""
        return self.far.length + self.near_k.shape[2]


class _Block(NamedTuple):
    """One block: queries and near keys as softmax sees them, features of queries and of the keys that turn far.

    Shape:
        q, query_scale: [B, H, G, N, ...]; k, v [B, H, held + N, ...]; mask bool [B, held + N].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor
    phi_q: Tensor
    query_scale: Tensor
    far_k: Features
    held: int
    window: int


def empty_hybrid(feature_map: FeatureMap, sequence: Sequence) -> HybridState:
    """The state before the first token of the sequence."""
    mask = torch.ones(sequence.k.shape[0], 0, dtype=torch.bool, device=sequence.k.device)
    return HybridState(empty_sums(feature_map, sequence), sequence.k[:, :, :0], sequence.v[:, :, :0], mask)


def attend_hybrid(
    feature_map: FeatureMap, sequence: Sequence, window: int, log_mix: Tensor, state: HybridState
) -> tuple[Attended, HybridState]:
    """Causal attention of both kinds after ``state``: time O(N · (window + M)).

    With gradients, each block is computed again in the backward pass, and only states are kept.

    Args:
        log_mix: [H], log of the factor of kernel weights.
        state: never changed in place.

    Shape:
        See ``KernelAttention``; the state holds the last ``window`` keys and values.
    """
    parts = []
    rows = list(blocks(sequence.k, feature_map))
    for block in cut_all(sequence, rows, ("q", "k", "v")):
        if torch.is_grad_enabled() and len(rows) > 1:
            part, state = checkpoint(_attend_block, feature_map, block, window, log_mix, state, use_reentrant=False)
        else:
            part, state = _attend_block(feature_map, block, window, log_mix, state)
        parts.append(part)
    if not parts:
        empty = sequence.q.sum(-1)
        return Attended(sequence.v.new_zeros(*empty.shape, sequence.v.shape[-1]), empty.bool()), state
    return Attended(*(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))), state


def _attend_block(
    feature_map: FeatureMap, sequence: Sequence, window: int, log_mix: Tensor, state: HybridState
) -> tuple[Attended, HybridState]:
    block = _prepare(feature_map, sequence, window, log_mix, state)
    far, parts = state.far, []
    length = sequence.k.shape[2]
    for start in range(0, length, _CHUNK_SIZE):
        part, far = _attend_chunk(block, start, min(start + _CHUNK_SIZE, length), far, feature_map.floor)
        parts.append(part)
    out, floored = (torch.cat(tensors, dim=3) for tensors in zip(*parts, strict=True))
    shape = sequence.q.shape[:3]
    kept = slice(max(0, block.held + length - window), None)
    k = torch.cat([state.near_k, sequence.k], dim=2)[:, :, kept]
    after = HybridState(far, k, block.v[:, :, kept].to(sequence.v.dtype), block.mask[:, kept])
    return Attended(out.reshape(*shape, out.shape[-1]), floored.reshape(shape)), after


def _prepare(feature_map: FeatureMap, sequence: Sequence, window: int, log_mix: Tensor, state: HybridState) -> _Block:
    k, v = torch.cat([state.near_k, sequence.k], dim=2), torch.cat([state.near_v, sequence.v], dim=2)
    own = sequence.key_mask
    if own is None:
        own = state.near_mask.new_ones(sequence.k.shape[0], sequence.k.shape[2])
    mask = torch.cat([state.near_mask, own], dim=1)
    held = state.near_k.shape[2]
    leaving = max(0, k.shape[2] - window)
    positions = torch.arange(leaving, device=k.device) + state.far.length
    far_k = feature_map.map_k(k[:, :, :leaving], sequence.scale, mask[:, :leaving], positions)
    q = sequence.queries(feature_map)
    dtype = q.values.dtype
    root = math.sqrt(softmax_scale(k.shape[-1], sequence.scale))
    batch, heads = k.shape[:2]

    def grouped(x: Tensor) -> Tensor:
        return x.reshape(batch, heads, -1, *x.shape[2:])

    # A key that is hidden may hold anything; what is hidden must not meet a product.
    near_k = (k.to(dtype) * root - feature_map.key_shift.to(dtype)[:, None]).masked_fill(~mask[:, None, :, None], 0.0)
    scale = q.values.new_zeros(q.values.shape[:3]) if q.log_scale is None else q.log_scale
    query_scale = grouped(scale) + log_mix.to(dtype)[:, None, None]
    rows = grouped(sequence.q.to(dtype) * root)
    return _Block(rows, near_k, v.to(dtype), mask, grouped(q.values), query_scale, far_k, held, window)


def _attend_chunk(
    block: _Block, start: int, stop: int, far: State, floor: float
) -> tuple[tuple[Tensor, Tensor], State]:
    """Rows start … stop; out [B, H, G, C, Dv], floored [B, H, G, C], and the sums after them."""
    row = torch.arange(start, stop, device=block.q.device)[:, None] + block.held
    near = slice(max(0, block.held + start - block.window + 1), block.held + stop)
    passed = slice(*(max(0, block.held + x - block.window) for x in (start, stop)))
    scores = block.q[:, :, :, start:stop] @ block.k[:, :, None, near].transpose(-1, -2)
    column = torch.arange(near.start, near.stop, device=row.device)
    seen = (column <= row) & (column > row - block.window) & block.mask[:, None, None, None, near]
    scores = scores.masked_fill(~seen, -torch.inf)
    keys = cut(block.far_k, passed)
    assert keys.log_scale is not None
    turned = torch.arange(passed.start, passed.stop, device=row.device) <= row - block.window
    logs = keys.log_scale[:, :, None, :].masked_fill(~turned, -torch.inf)
    query_scale = block.query_scale[..., start:stop]
    top = _top(scores, logs, query_scale, far)
    near_weights = torch.exp(scores - top[..., None])
    far_weights = torch.exp(logs[:, :, None] + (query_scale - top)[..., None])
    before = torch.exp(far.log_max[..., None, None] + (query_scale - top))
    phi_q, v = block.phi_q[:, :, :, start:stop], block.v[:, :, None]
    kernel = (phi_q @ keys.values[:, :, None].transpose(-1, -2)) * far_weights
    num = near_weights @ v[:, :, :, near] + kernel @ v[:, :, :, passed]
    num = num + (phi_q @ far.kv[:, :, None]) * before[..., None]
    near_sum = near_weights.sum(-1)
    den = near_sum + kernel.sum(-1) + (phi_q @ far.k_sum[:, :, None, :, None])[..., 0] * before
    mass = near_sum + far_weights.sum(-1) + far.mass[..., None, None] * before
    out, floored = normalise(num, den, mass, floor)
    return (out, floored), fold_keys(keys, block.v[:, :, passed], far)


def _top(scores: Tensor, logs: Tensor, query_scale: Tensor, far: State) -> Tensor:
    """The largest log weight that each row sees [B, H, G, C], 0 where there is none; constant to the gradient."""
    near = scores.detach().amax(-1)
    oldest = far.log_max[..., None]
    if logs.shape[-1]:
        oldest = torch.maximum(oldest, logs.detach().amax(-1))
    top = torch.maximum(near, oldest[:, :, None] + query_scale.detach())
    return top.masked_fill(top == -torch.inf, 0.0)
