"""Deterministic parameter-free projection."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.checks import fixed_width
from kernelformer.feature_maps.vanishing import key_features, query_features, scaled
from kernelformer.features import FeatureMap, Features

__all__ = ["Dpfp"]


class Dpfp(FeatureMap):
    """phi_{ij}(x) = r_j · r_{j+i}, r = [max(x, 0), max(-x, 0)], i = 1 … nu, indices modulo 2 D.

    Products of rectified neighbours: sparse features that make keys more nearly orthogonal. Nothing is
    learned. One more feature gives a query whose products all vanish, or that shares none with any visible key,
    the mean of the visible values.

    Domain and numerics: positive; quadratic in x, the scale goes into ``log_scale``, ``values`` lie in [0, 1].

    Args:
        num_features: None or 2 · D · nu + 1.
        nu: how many shifts, 1 … 2 D - 1.

    Shape:
        [B, H, N, D] -> values [B, H, N, 2 · D · nu + 1], log_scale [B, H, N].

    Raises:
        KernelformerError: nu out of range.

    References:
        Schlag, Irie and Schmidhuber 2021, arXiv 2102.11174, section 5.3.

    Example:
        >>> import torch
        >>> Dpfp(head_dim=2, num_heads=1).phi(torch.ones(1, 1, 1, 2)).values
        tensor([[[[1., 0., 0., 0., 1.]]]])
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int | None = None,
        *,
        nu: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        if not 1 <= nu < 2 * head_dim:
            raise KernelformerError(f"nu must lie in 1 … 2 head_dim - 1 = {2 * head_dim - 1}, got {nu}")
        super().__init__(head_dim, num_heads, fixed_width("dpfp", 2 * head_dim * nu + 1, num_features))
        self.nu = nu

    def phi(self, x: Tensor) -> Features:
        return key_features(*self._products(x))

    def phi_q(self, x: Tensor) -> Features:
        return query_features(*self._products(x))

    def _products(self, x: Tensor) -> tuple[Tensor, Tensor]:
        r, log_scale = scaled(torch.cat([x, -x], dim=-1).relu())
        shifted = [r.roll(-shift, dims=-1) for shift in range(1, self.nu + 1)]
        return (r[..., None, :] * torch.stack(shifted, dim=-2)).flatten(-2), 2.0 * log_scale
