"""Whether queries, keys and values fit together."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.errors import ShapeError

__all__ = ["check_shapes", "expand_heads", "show_shapes"]


def check_shapes(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, *, heads: int, causal: bool) -> None:
    """Raise a ShapeError that says what does not fit; ``heads`` is that of the feature map."""
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ShapeError(f"q, k and v must be [B, H, N, D], got {show_shapes(q, k, v)}")
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3]:
        raise ShapeError(
            f"q, k and v need one batch size, k and v the same heads and length, got {show_shapes(q, k, v)}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise ShapeError(f"q, k and v need one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ShapeError(f"the heads of q must be a multiple of the heads of k, got {show_shapes(q, k, v)}")
    if heads not in (q.shape[1], k.shape[1]):
        raise ShapeError(f"the feature map has {heads} heads, got {show_shapes(q, k, v)}")
    if causal and q.shape[2] != k.shape[2]:
        raise ShapeError(f"causal attention needs queries and keys of one length, got {show_shapes(q, k, v)}")
    if key_mask is not None and (key_mask.dtype != torch.bool or key_mask.shape != (k.shape[0], k.shape[2])):
        raise ShapeError(
            f"key_mask must be bool [B, S] = [{k.shape[0]}, {k.shape[2]}], True = visible, "
            f"got {key_mask.dtype} {list(key_mask.shape)}"
        )


def show_shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    """For errors."""
    return f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"


def expand_heads(k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Repeat keys and values where there is one map for every query head."""
    if k.shape[1] == heads:
        return k, v
    groups = heads // k.shape[1]
    return k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
