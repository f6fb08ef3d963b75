"""Exact softmax attention: the yardstick, quadratic in the length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["attend_softmax"]


def attend_softmax(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, key_mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """softmax(q kᵀ · scale) v over the visible keys, zeros where there is none, by PyTorch's own kernels.

    Shape:
        q [B, Hq, N, D]; k [B, H, S, D] and v [B, H, S, Dv] with Hq a multiple of H; key_mask bool [B, S].
        Causal needs N = S. The dtype is that of the inputs.
    """
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    if key_mask is None:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    # What lies under padding never enters: zero times NaN is NaN.
    hidden = ~key_mask[:, None, :, None]
    k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
    visible = key_mask[:, None, None, :].expand(-1, 1, q.shape[2], -1)
    if causal:
        visible = visible & torch.ones(visible.shape[-2:], dtype=torch.bool, device=q.device).tril()
    blind = ~visible.any(-1, keepdim=True)
    # Whether a row that sees nothing is 0 or NaN depends on the kernel: let it see all, and drop the result.
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible | blind, scale=scale)
    return out.masked_fill(blind, 0.0)
