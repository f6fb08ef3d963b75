"""Exact softmax attention behind the interface of a feature map: a reference point."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.checks import fixed_width
from kernelformer.features import FeatureMap, Features

__all__ = ["Softmax"]


class Softmax(FeatureMap):
    """k(q, k) = exp(q·k) itself, which no finite phi gives: ``KernelAttention`` computes it directly.

    For comparison, through the same module: quadratic time, and no ``stream``, since its state would have to
    keep every key. It has no features, hence is no entry of ``FEATURE_MAPS``; its name is known all the same.

    Args:
        num_features: None or head_dim; it means nothing here.

    Raises:
        KernelformerError: from ``phi``, always.

    References:
        Vaswani et al. 2017, arXiv 1706.03762.

    Example:
        >>> import torch, kernelformer as kf
        >>> q, k, v = torch.randn(3, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
        >>> exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        >>> torch.equal(kf.KernelAttention(kf.feature_maps.Softmax(8, 2))(q, k, v), exact)
        True
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
        super().__init__(head_dim, num_heads, fixed_width("softmax", head_dim, num_features))

    def phi(self, x: Tensor) -> Features:
        raise KernelformerError(
            "softmax has no finite features: use it through KernelAttention, or take favor, softmax_sampling or "
            "another map that estimates it"
        )
