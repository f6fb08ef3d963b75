"""Several sequences one behind the other in one tensor, told apart by their offsets."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from kernelformer.errors import ShapeError

__all__ = ["split_packed"]


def split_packed(x: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, ...]:
    """Cut x [1, H, T, D] into sequences [1, H, N_i, D] at the offsets [0, N_1, N_1 + N_2, ..., T].

    Args:
        cu_seqlens: integers that do not fall, from 0 to T; equal neighbours are an empty sequence.

    Raises:
        ShapeError: offsets or batch size are not so.
    """
    if x.shape[0] != 1:
        raise ShapeError(f"packed sequences need batch size 1, got {x.shape[0]}: join them along the length")
    if cu_seqlens.ndim != 1 or cu_seqlens.dtype not in (torch.int32, torch.int64) or not len(cu_seqlens):
        raise ShapeError(
            f"cu_seqlens must be a list of int32 or int64, got {cu_seqlens.dtype} {list(cu_seqlens.shape)}"
        )
    offsets = cu_seqlens.tolist()
    lengths = [after - before for before, after in itertools.pairwise(offsets)]
    if offsets[0] != 0 or offsets[-1] != x.shape[2] or min(lengths, default=0) < 0:
        raise ShapeError(f"cu_seqlens must rise from 0 to the length {x.shape[2]}, got {_short(offsets)}")
    parts: tuple[Tensor, ...] = torch.split(x, lengths, dim=2)
    return parts


def _short(offsets: list[int]) -> str:
    return str(offsets) if len(offsets) <= 8 else f"[{', '.join(map(str, offsets[:4]))}, ..., {offsets[-1]}]"
