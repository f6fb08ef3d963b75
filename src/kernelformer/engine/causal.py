"""Row t sees keys up to t: chunks along the sequence, one state.

No scale of a row depends on a later key, so changing a key changes no bit of an earlier output.
There are two forms of the same sums. ``attend_causal`` takes blocks of chunks at once, with key scales
in powers of two (``scales``). Where no value can be looked at (``torch.compile``, ``torch.func``, a GPU
that must not wait) ``pairwise`` gives each row its running maximum m_t = max_{j <= t} log_scale_j instead. Either
reference cancels in the ratio; it is a constant to the gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernelformer.engine.chunks import Sums, chunks_forward, cut_chunks
from kernelformer.engine.pairwise import attend_pairwise, decayed, pairwise_size
from kernelformer.engine.rows import cut, join, whole_and_rest
from kernelformer.engine.scales import HEADROOM, LN2, references, split_scales
from kernelformer.engine.state import Attended, State, empty_state, normalise
from kernelformer.features import Features
from kernelformer.traced import has_tangent, is_traced

__all__ = ["CHUNK_SIZE", "Plan", "attend_causal", "attend_step", "plan_scales", "rows_from", "times"]

# Products inside chunks cost C · (M + Dv) a token: of 16, 32, 64 and 128, 32 was fastest on a CPU.
CHUNK_SIZE = 32


def attend_causal(
    q: Features,
    k: Features,
    v: Tensor,
    *,
    floor: float = 0.0,
    state: State | None = None,
    chunk_size: int | None = None,
    products: torch.dtype | None = None,
) -> tuple[Attended, State]:
    """Causal attention over a segment that follows ``state``; O(N) time.

    ``products`` is the dtype of the factors of matrix products where no gradient is asked for; None is that of
    the features. Sums are kept in the dtype of the state.

    Shape:
        q.values [B, Hq, N, M]; k.values [B, H, N, M] with Hq a multiple of H; v [B, H, N, Dv].
        N may be 0 or 1. The state is never changed in place.
    """
    batch, heads, length, width = k.values.shape
    if state is None:
        state = empty_state(batch, heads, width, v.shape[-1], k.values.dtype, v.device)
    if is_traced(k.values) or k.log_decay is not None:
        size = pairwise_size(length) if chunk_size is None else chunk_size
        return attend_pairwise(q, k, v.to(k.values.dtype), state, floor=floor, chunk_size=size)
    if chunk_size is None:
        chunk_size = CHUNK_SIZE
    parts = []
    for rows, size in whole_and_rest(length, chunk_size):
        part, state = _attend_block(cut(q, rows), cut(k, rows), v[:, :, rows], state, floor, size, products)
        parts.append(part)
    return join(parts, q, k, v), state


def attend_step(q: Features, k: Features, v: Tensor, state: State, *, floor: float = 0.0) -> tuple[Attended, State]:
    """One token after ``state``: O(M · Dv), whatever the length seen. All lengths are 1."""
    batch, heads, _, width = k.values.shape
    rows = q.values.reshape(batch, heads, -1, width)
    if k.log_decay is not None:
        state = decayed(state, k.log_decay[..., 0])
    before, key, weight, log_max = _at_new_maximum(k, state)
    kv = torch.addcmul(before[0], key[..., None], v)
    k_sum, mass = before[1] + key, before[2] + weight
    out, floored = normalise(rows @ kv, (rows * k_sum[..., None, :]).sum(-1), mass[..., None], floor)
    shape = q.values.shape[:-1]
    attended = Attended(out.reshape(*shape, v.shape[-1]), floored.reshape(shape))
    return attended, State(kv, k_sum, mass, log_max, state.length + 1)


def _at_new_maximum(k: Features, state: State) -> tuple[Sums, Tensor, Tensor | float, Tensor]:
    """The sums of the state, key [B, H, M] and weight [B, H] of one token, over exp of the maximum with it."""
    key = k.values[..., 0, :]
    sums = (state.kv, state.k_sum, state.mass)
    if k.log_scale is None:
        # Then the maximum is 0 from the first token on, and the sums before it are 0.
        return sums, key, 1.0, torch.zeros_like(state.log_max)
    log_scale = k.log_scale[..., 0]
    log_max = torch.maximum(state.log_max, log_scale.detach())
    finite = log_max.masked_fill(log_max == -torch.inf, 0.0)
    weight = torch.exp(log_scale - finite)
    return times(sums, torch.exp(state.log_max - finite)), key * weight[..., None], weight, log_max


class Plan(NamedTuple):
    """The scales of a block: ``parts`` are (first row, factor of the sums before, weights of the keys).

    The sums after the last part times ``rest`` are the next state's, whose reference is ``log_max``.
    """

    parts: list[tuple[Tensor, Tensor, Tensor]]
    rest: Tensor
    log_max: Tensor


def plan_scales(k: Features, state: State) -> Plan:
    """Key scales in powers of two (``scales``)."""
    if k.log_scale is None:
        zeros = torch.zeros_like(state.log_max)
        return Plan([(zeros, torch.exp(state.log_max), torch.ones_like(k.values[..., 0]))], zeros + 1.0, zeros)
    scales = split_scales(k.log_scale, state.log_max)
    found = list(references(scales))
    # The state is handed on at its running maximum: a rounding that no row of this block sees.
    log_max = torch.maximum(state.log_max, k.log_scale.detach().amax(-1))
    rest = torch.where(log_max == -torch.inf, 0.0, found[-1].whole * LN2 - (log_max - scales.base))
    # Beyond 2^24 a log scale has no fraction, and rounding would exceed what rest can be.
    rest = rest.clamp(-(HEADROOM + 1) * LN2, 0.0)
    parts = [(start, torch.exp2(-whole), weights) for start, whole, weights in found]
    return Plan(parts, torch.exp(rest), log_max)


def _attend_block(
    q: Features,
    k: Features,
    v: Tensor,
    state: State,
    floor: float,
    chunk_size: int,
    products: torch.dtype | None,
) -> tuple[Attended, State]:
    """Whole chunks, all at once but for the sum of their states."""
    plan = plan_scales(k, state)
    has_graph = _has_graph(q, k, v, state)
    parts: list[tuple[Tensor, tuple[Tensor, ...]]] = []
    for start, factor, weights in plan.parts:
        before = times(state[:3], factor)
        if has_graph:
            rows, after = _attend_scaled(q.values, k.values, weights, v, before, chunk_size)
        else:
            rows, after = chunks_forward(cut_chunks(q.values, k.values, weights, v, chunk_size, products), before)
        parts.append((start, rows))
    length = state.length + k.values.shape[2]
    return _normalise(rows_from(parts), q, floor), State(*times(after, plan.rest), plan.log_max, length)


def _attend_scaled(
    q: Tensor, keys: Tensor, weights: Tensor, v: Tensor, before: Sums, chunk_size: int
) -> tuple[Sums, Sums]:
    """Numerator, denominator and mass of all rows, and the sums after them.

    Shape:
        q [B, Hq, N, M]; keys [B, H, N, M], whose weights [B, H, N] are at the scale of the sums ``before``.
        Rows are [B, H, G, N, ...] with G = Hq / H, the mass [B, H, 1, N].
    """
    batch, heads, length, width = keys.shape
    chunks = length // chunk_size
    keys = keys * weights[..., None]
    rows = q.reshape(batch, heads, -1, chunks, chunk_size, width).transpose(2, 3)
    groups = rows.shape[3]
    rows = rows.reshape(-1, groups * chunk_size, width)
    keys = keys.reshape(-1, chunk_size, width)
    values = v.reshape(-1, chunk_size, v.shape[-1])
    kernel = rows @ keys.transpose(1, 2)
    kernel.view(-1, groups, chunk_size, chunk_size).tril_()
    kv, last_kv = _sums_before(before[0], keys.transpose(1, 2) @ values)
    k_sum, last_k_sum = _sums_before(before[1], keys.sum(1))
    num = torch.baddbmm(_mix(kernel, values), rows, kv)
    den = kernel.sum(-1) + (rows * k_sum[:, None]).sum(-1)
    mass = weights.cumsum(-1) + before[2][..., None]

    def in_order(x: Tensor) -> Tensor:
        x = x.reshape(batch, heads, chunks, groups, chunk_size, *x.shape[2:])
        return x.transpose(2, 3).flatten(3, 4)

    return (in_order(num), in_order(den), mass[:, :, None]), (last_kv, last_k_sum, mass[..., -1])


def _has_graph(q: Features, k: Features, v: Tensor, state: State) -> bool:
    """Whether autograd follows any of these, backward or forward: then nothing may be written in place."""
    tensors = [x for x in (q.values, *k, v, *state[:3]) if x is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return True
    return any(has_tangent(x) for x in tensors)


def _sums_before(start: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """From sums of single chunks [B · H · chunks, ...] to those before each chunk, and those after the last.

    ``start`` [B, H, ...] comes before all.
    """
    sums = [start.flatten(0, 1)]
    for chunk in added.unflatten(0, (sums[0].shape[0], -1)).unbind(1):
        sums.append(sums[-1] + chunk)
    return torch.stack(sums[:-1], dim=1).flatten(0, 1), sums[-1].view_as(start)


def _mix(kernel: Tensor, values: Tensor) -> Tensor:
    """kernel @ values, where 0 · NaN and 0 · inf of values that a row cannot see are 0."""
    if bool(values.detach().sum().isfinite()):
        return kernel @ values
    finite = values.isfinite()
    seen = kernel @ torch.where(finite, values, 0.0)
    groups = kernel.shape[1] // values.shape[1]
    return seen + torch.where(finite, 0.0, values).cumsum(1).repeat(1, groups, 1)


def times(sums: Sums, scale: Tensor) -> Sums:
    """Sums times a scale [B, H]."""
    return sums[0] * scale[..., None, None], sums[1] * scale[..., None], sums[2] * scale


def rows_from(parts: list[tuple[Tensor, tuple[Tensor, ...]]]) -> tuple[Tensor, ...]:
    """Tensors [B, H, G, N, ...], each part's from its first row [B, H] on."""
    joined = parts[0][1]
    for start, part in parts[1:]:
        later = (torch.arange(joined[0].shape[3], device=start.device) >= start[..., None])[:, :, None]
        joined = tuple(
            torch.where(later if x.ndim == 4 else later[..., None], new, x) for x, new in zip(joined, part, strict=True)
        )
    return joined


def _normalise(rows: tuple[Tensor, ...], q: Features, floor: float) -> Attended:
    num, den, mass = rows
    out, floored = normalise(num, den, mass, floor)
    return Attended(out.reshape(*q.values.shape[:3], out.shape[-1]), floored.reshape(q.values.shape[:3]))
