"""Every query sees every visible key: keys are folded into one state, queries read it."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.engine.state import Attended, State, empty_state, normalise
from kernelformer.features import Features

__all__ = ["attend_bidirectional", "attend_quadratic", "fold_keys", "read_state"]


def attend_bidirectional(q: Features, k: Features, v: Tensor, *, floor: float = 0.0) -> Attended:
    """phi(q)·(Σ phi(k) vᵀ) / phi(q)·Σ phi(k): O(N + S) time and memory.

    Shape:
        q.values [B, Hq, N, M]; k.values [B, H, S, M] with Hq a multiple of H; v [B, H, S, Dv].
    """
    return read_state(q, fold_keys(k, v), floor=floor)


def fold_keys(k: Features, v: Tensor, state: State | None = None, *, products: torch.dtype | None = None) -> State:
    """The state after more keys and values: the memory of cross-attention, in any number of calls.

    ``products`` is the dtype of the factors of matrix products, None that of the features.

    Shape:
        k.values [B, H, S, M]; v [B, H, S, Dv]. The state is never changed in place.
    """
    batch, heads, length, width = k.values.shape
    if state is None:
        state = empty_state(batch, heads, width, v.shape[-1], k.values.dtype, v.device)
    log_max = _top(k, state.log_max)
    finite = torch.where(log_max == -torch.inf, 0.0, log_max)
    decay = torch.exp(state.log_max - finite)
    weights = _key_weights(k, finite)
    # Not made a float: exported, the length is a symbol, which that would fix at its value.
    mass: Tensor | int = length
    if weights is None:
        k_sum = k.values.sum(-2)
    else:
        # A weight to a value costs less than a weight to a feature.
        k_sum, mass = (weights[..., None, :] @ k.values)[..., 0, :], weights.sum(-1)
        v = v * weights[..., None]
    keys = k.values if products is None else k.values.to(products)
    return State(
        state.kv * decay[..., None, None] + keys.transpose(-1, -2) @ v.to(keys.dtype),
        state.k_sum * decay[..., None] + k_sum,
        state.mass * decay + mass,
        log_max,
        state.length + length,
    )


def read_state(q: Features, state: State, *, floor: float = 0.0, products: torch.dtype | None = None) -> Attended:
    """What queries [B, Hq, N, M] get from the keys in ``state``; ``products`` as in :func:`fold_keys`."""
    batch, heads, width = state.k_sum.shape
    rows = q.values.reshape(batch, heads, -1, width)
    # The single row first: with a single column, the product takes several times as long.
    den = (state.k_sum[..., None, :] @ rows.transpose(-1, -2))[..., 0, :]
    num = rows @ state.kv if products is None else rows.to(products) @ state.kv.to(products)
    return _as_heads(normalise(num, den, state.mass[..., None], floor), q)


def attend_quadratic(q: Features, k: Features, v: Tensor, *, floor: float = 0.0) -> Attended:
    """The same sums with the N × S weights written out: cheaper where N and S are below M."""
    batch, heads = k.values.shape[:2]
    rows = q.values.reshape(batch, heads, -1, q.values.shape[-1])
    top = _top(k, k.values.new_full((batch, heads), -torch.inf))
    weights = _key_weights(k, torch.where(top == -torch.inf, 0.0, top))
    if weights is None:
        weights = torch.ones_like(k.values[..., 0])
    kernel = (rows @ k.values.transpose(-1, -2)) * weights[..., None, :]
    mass = weights.sum(-1, keepdim=True)
    return _as_heads(normalise(kernel @ v, kernel.sum(-1), mass, floor), q)


def _top(k: Features, before: Tensor) -> Tensor:
    """The largest log_scale so far [B, H], constant to the gradient."""
    if k.values.shape[2] == 0:
        return before
    if k.log_scale is None:
        return before.clamp_min(0.0)
    return torch.maximum(before, k.log_scale.detach().amax(-1))


def _key_weights(k: Features, top: Tensor) -> Tensor | None:
    """exp(log_scale - top) [B, H, S]; None for ones."""
    if k.log_scale is None:
        return None
    return torch.exp(k.log_scale - top[..., None])


def _as_heads(attended: Attended, q: Features) -> Attended:
    out, floored = attended
    shape = q.values.shape[:-1]
    return Attended(out.reshape(*shape, out.shape[-1]), floored.reshape(shape))
