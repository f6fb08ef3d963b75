"""Learned spectral frequencies, stationary kernel (Flexformer_s)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelformer.errors import KernelformerError
from kernelformer.features import Features, ProjectedFeatureMap, seeded

__all__ = ["FlexformerS"]


class FlexformerS(ProjectedFeatureMap):
    """phi(x) = exp(‖x‖²/2) / sqrt(n) · [cos(omega_iᵀx), sin(omega_iᵀx)], i = 1 … n = M/2, omega learned.

    For omega_i ~ N(0, I) an unbiased estimate of exp(x·y): the softmax kernel is a Gaussian kernel
    of x - y times a factor of each side (Bochner).

    Domain and numerics: signed, ‖values‖ = 1; the factor exp(‖x‖²/2) is ``log_scale``. The engine keeps the
    denominator above ``floor`` times the key mass.

    Args:
        num_features: M, even.
        frequency_scale: standard deviation of the start of omega; 1 is softmax, small is flat.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]; omega [H, D, M/2].

    References:
        Zhang and Zhou 2026, arXiv 2606.27748, equation 5.

    Example:
        >>> import torch
        >>> values, _ = FlexformerS(head_dim=4, num_heads=1, num_features=6).phi(torch.ones(1, 1, 1, 4))
        >>> bool((values.norm() - 1).abs() < 1e-6)
        True
    """

    is_positive = False

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        frequency_scale: float = 1.0,
        floor: float = 0.05,
        generator: torch.Generator | None = None,
    ) -> None:
        if num_features % 2:
            raise KernelformerError(f"flexformer_s pairs cos and sin: num_features must be even, got {num_features}")
        if not 0 < floor <= 1:
            raise KernelformerError(f"floor must lie in (0, 1], got {floor}")
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features // 2, trainable=True)
        self.floor = floor
        self.frequency_scale = frequency_scale
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        drawn = torch.randn(self.omega.shape, generator=seeded(generator), device="cpu")
        self.omega.copy_(self.frequency_scale * drawn)

    def phi(self, x: Tensor) -> Features:
        angles = self.project(x)
        values = torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(angles.shape[-1])
        return Features(values, 0.5 * x.square().sum(-1))
