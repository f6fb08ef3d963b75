"""Rectified coordinates."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.checks import fixed_width
from kernelformer.feature_maps.vanishing import key_features, query_features, scaled
from kernelformer.features import FeatureMap, Features

__all__ = ["Relu"]


class Relu(FeatureMap):
    """phi(x) = [max(x, 0), 1] for keys, [max(x, 0), 1 if x <= 0 else 0] for queries; nothing is learned.

    The last feature gives a query without a positive coordinate the mean of the visible values. So does it, by
    a share below rounding, to a query that has no positive coordinate in common with any visible key.

    Domain and numerics: positive; the largest feature goes into ``log_scale``, ``values`` lie in [0, 1].

    Args:
        num_features: None or head_dim + 1.

    Shape:
        [B, H, N, D] -> values [B, H, N, D + 1], log_scale [B, H, N].

    References:
        Katharopoulos et al. 2020, arXiv 2006.16236, section 3.2.1; Qin et al. 2022, arXiv 2202.08791.

    Example:
        >>> import torch
        >>> Relu(head_dim=2, num_heads=1).map_q(-torch.ones(1, 1, 1, 2)).values
        tensor([[[[0., 0., 1.]]]])
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
        super().__init__(head_dim, num_heads, fixed_width("relu", head_dim + 1, num_features))

    def phi(self, x: Tensor) -> Features:
        return key_features(*scaled(x.relu()))

    def phi_q(self, x: Tensor) -> Features:
        return query_features(*scaled(x.relu()))
