"""The exponential to second order (Based)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelformer.feature_maps.checks import check_floor, fixed_width
from kernelformer.features import FeatureMap, Features

__all__ = ["Taylor"]


class Taylor(FeatureMap):
    """phi(x) = [1, x, x ⊗ x / sqrt(2)]: k(x, y) = 1 + x·y + (x·y)²/2, exactly. Nothing is learned.

    Packed, the default, keeps one of each pair x_i x_j and x_j x_i, times sqrt(2): the same kernel with
    1 + D + D (D + 1) / 2 features instead of 1 + D + D². The width grows with D², so project queries and
    keys to 16 dimensions or so, as the source does.

    Domain and numerics: features are signed, the kernel is not, k >= 1/2. ``values`` = phi / ‖phi‖ and
    ``log_scale`` = log ‖phi‖, so that |values_q·values_k| <= 1; the engine keeps the denominator above
    ``floor`` times the key mass, which only matters where ‖q‖ ‖k‖ is in the hundreds.

    Args:
        num_features: None or the width above.
        packed: one feature for each unordered pair; False keeps all D².
        floor: the floor relative to the key mass, in (0, 1].

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N].

    References:
        Arora et al. 2024, arXiv 2402.18668.

    Example:
        >>> import torch
        >>> values, log_scale, _ = Taylor(head_dim=2, num_heads=1).phi(torch.ones(1, 1, 1, 2))
        >>> round((values.square().sum() * torch.exp(2 * log_scale)).item(), 4)  # 1 + 2 + 2² / 2
        5.0
    """

    is_positive = False

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int | None = None,
        *,
        packed: bool = True,
        floor: float = 1e-4,
        generator: torch.Generator | None = None,
    ) -> None:
        check_floor(floor)
        width = 1 + head_dim + (head_dim * (head_dim + 1) // 2 if packed else head_dim**2)
        super().__init__(head_dim, num_heads, fixed_width("taylor", width, num_features))
        self.packed = packed
        self.floor = floor

    def phi(self, x: Tensor) -> Features:
        # In units of max(1, |x|), so that nothing overflows: the terms are u² · [1, x, x ⊗ x / sqrt(2)].
        unit = x.detach().abs().amax(-1, keepdim=True).clamp_min(1.0).reciprocal()
        y = x * unit
        terms = torch.cat([unit.square(), y * unit, self._pairs(y)], dim=-1)
        norm = terms.square().sum(-1, keepdim=True).sqrt()
        return Features(terms / norm, (norm[..., 0].log() - 2.0 * unit[..., 0].log()))

    def _pairs(self, y: Tensor) -> Tensor:
        products = y[..., :, None] * y[..., None, :]
        if not self.packed:
            return products.flatten(-2) * math.sqrt(0.5)
        row, column = torch.triu_indices(self.head_dim, self.head_dim, 1, device=y.device)
        squares = torch.diagonal(products, dim1=-2, dim2=-1) * math.sqrt(0.5)
        return torch.cat([squares, products[..., row, column]], dim=-1)
