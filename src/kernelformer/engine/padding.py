"""What padding holds must not reach a sum."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["without_padding"]

# Its square is still a finite float32.
_LARGEST_QUERY = 1e18


def without_padding(q: Tensor, v: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values of masked keys become zero; so do queries there that no feature map could bear.

    In self-attention a padded position is a query, too. Zero times NaN is NaN, in the gradients of
    real tokens as well, so padding that is NaN, or would overflow to it, must not enter. Other
    queries stay: in cross-attention of equal lengths the mask says nothing about them.
    """
    if key_mask is None:
        return q, v
    v = v.masked_fill(~key_mask[:, None, :, None], 0.0)
    if q.shape[2] == key_mask.shape[1]:
        bearable = q.abs().amax(-1, keepdim=True) <= min(_LARGEST_QUERY, torch.finfo(q.dtype).max)
        real = key_mask[:, None, :, None] | bearable
        q = q.masked_fill(~real, 0.0)
    return q, v
