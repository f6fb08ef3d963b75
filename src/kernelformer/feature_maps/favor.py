"""Positive random features for the softmax kernel (FAVOR+)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.features import Features, FusedForm, ProjectedFeatureMap, orthogonal_gaussian, seeded

__all__ = ["Favor"]


class Favor(ProjectedFeatureMap):
    """phi_r(x) = exp(omega_r·x - ‖x‖²/2) / sqrt(M) with frozen random omega_r ~ N(0, I).

    E[phi(x)·phi(y)] = exp(x·y): an unbiased estimate of the softmax kernel.

    Domain and numerics: positive at any magnitude; values in [0, 1]. The relative variance grows
    as exp(‖x + y‖²), so that isotropic draws are of little use beyond norms of about 2.

    Args:
        num_features: M, any number.
        orthogonal: columns orthogonal within blocks of D (lower variance); independent if False.
        generator: draws omega; None is a fresh generator of seed 0. Redraw by ``reset_parameters``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N].

    References:
        Choromanski et al. 2021, arXiv 2009.14794.

    Example:
        >>> import torch
        >>> favor = Favor(head_dim=4, num_heads=1, num_features=4096)
        >>> x = torch.full((1, 1, 1, 4), 0.5)
        >>> values, log_scale, _ = favor.phi(x)
        >>> estimate = values.square().sum() * torch.exp(2 * log_scale.sum())
        >>> bool((estimate / torch.exp(x.square().sum()) - 1).abs() < 0.1)
        True
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        orthogonal: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=False)
        self.orthogonal = orthogonal
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        if self.orthogonal:
            drawn = orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator)
        else:
            drawn = torch.randn(self.omega.shape, generator=seeded(generator), device="cpu")
        self.omega.copy_(drawn)

    def phi(self, x: Tensor) -> Features:
        return exponential_features(self.project(x), -0.5 * x.square().sum(-1))

    def fused_form(self) -> FusedForm:
        half = torch.full_like(self.omega[:, 0, 0], 0.5)
        return FusedForm(self.omega, damping=half, constant=-0.5 * math.log(self.num_features))
