"""Every query sees every visible key: two matrix products per head, linear in both lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.engine.state import Attended, normalise
from kernelformer.features import Features

__all__ = ["attend_bidirectional", "attend_quadratic"]


def _key_weights(k: Features) -> Tensor:
    """exp(log_scale - max), per key; zeros where no key is visible."""
    if k.log_scale is None:
        return torch.ones_like(k.values[..., 0])
    if k.log_scale.shape[-1] == 0:
        return k.log_scale
    top = k.log_scale.detach().amax(-1, keepdim=True)
    return torch.exp(k.log_scale - torch.where(top.isinf(), 0.0, top))


def attend_bidirectional(q: Features, k: Features, v: Tensor, *, floor: float = 0.0) -> Attended:
    """phi(q)·(Σ phi(k) vᵀ) / phi(q)·Σ phi(k): O(N + S) time and memory.

    Shape:
        q.values [B, Hq, N, M]; k.values [B, H, S, M] with Hq a multiple of H; v [B, H, S, Dv].
    """
    batch, heads = k.values.shape[:2]
    rows = q.values.reshape(batch, heads, -1, q.values.shape[-1])
    weights = _key_weights(k)
    keys = k.values * weights[..., None]
    num = rows @ (keys.transpose(-1, -2) @ v)
    den = (rows @ keys.sum(-2)[..., None])[..., 0]
    return _as_heads(normalise(num, den, weights.sum(-1, keepdim=True), floor), q)


def attend_quadratic(q: Features, k: Features, v: Tensor, *, floor: float = 0.0) -> Attended:
    """The same sums with the N × S weights written out: cheaper where N and S are below M."""
    batch, heads = k.values.shape[:2]
    rows = q.values.reshape(batch, heads, -1, q.values.shape[-1])
    weights = _key_weights(k)
    kernel = (rows @ k.values.transpose(-1, -2)) * weights[..., None, :]
    mass = weights.sum(-1, keepdim=True)
    return _as_heads(normalise(kernel @ v, kernel.sum(-1), mass, floor), q)


def _as_heads(attended: Attended, q: Features) -> Attended:
    out, floored = attended
    shape = q.values.shape[:-1]
    return Attended(out.reshape(*shape, out.shape[-1]), floored.reshape(shape))
