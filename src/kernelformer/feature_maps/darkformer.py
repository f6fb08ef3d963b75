"""Positive random features with a learned covariance (DARKFormer)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.features import Features, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["Darkformer"]


class Darkformer(ProjectedFeatureMap):
    """phi_r(x) = exp(omega_r·Mx - ‖Mx‖²/2) / sqrt(M'), omega_r ~ N(0, I) frozen, M learned per head.

    E[phi(x)·phi(y)] = exp(xᵀΣy) with Σ = MᵀM: FAVOR+ whose projections have a learned covariance.
    M' is ``num_features``; M, called ``root``, starts at the identity, that is at FAVOR+.

    Domain and numerics: positive at any magnitude; values in [0, 1].

    Args:
        num_features: any number.
        trainable_projections: learn omega, too (the learned feature kernel, LFK, for M = I).
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, num_features], log_scale [B, H, N]; root [H, D, D].

    References:
        DARKFormer 2026, arXiv 2603.04127.

    Example:
        >>> import torch
        >>> Darkformer(head_dim=4, num_heads=2, num_features=16).root.shape
        torch.Size([2, 4, 4])
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        trainable_projections: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            head_dim, num_heads, num_features, num_projections=num_features, trainable=trainable_projections
        )
        self.root = nn.Parameter(torch.empty(num_heads, head_dim, head_dim))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator))
        self.root.copy_(torch.eye(self.head_dim, device="cpu").expand(self.root.shape))

    def phi(self, x: Tensor) -> Features:
        x = x @ self.root.to(x.dtype).transpose(-1, -2)
        return exponential_features(self.project(x), -0.5 * x.square().sum(-1))
