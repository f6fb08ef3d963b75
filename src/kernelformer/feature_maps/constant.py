"""The kernel that is 1 everywhere: a reference point."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.checks import fixed_width
from kernelformer.features import FeatureMap, Features

__all__ = ["Constant"]


class Constant(FeatureMap):
    """phi(x) = 1: attention is the mean of the visible values, whatever queries and keys say.

    What a kernel must beat to be worth anything. Nothing is learned.

    Domain and numerics: positive, any input, NaN included; the gradient of x is zero.

    Args:
        num_features: None or 1.

    Shape:
        [B, H, N, D] -> values [B, H, N, 1], no log_scale.

    References:
        A baseline of Farzam et al. 2026, arXiv 2603.04127.

    Example:
        >>> import torch
        >>> Constant(head_dim=4, num_heads=1).phi(torch.zeros(1, 1, 2, 4)).values
        tensor([[[[1.],
                  [1.]]]])
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, fixed_width("constant", 1, num_features))

    def phi(self, x: Tensor) -> Features:
        # Filled, not made afresh: zero gradients instead of none keep data-parallel training whole.
        return Features(x[..., :1].masked_fill(x.new_ones((), dtype=torch.bool), 1.0))
