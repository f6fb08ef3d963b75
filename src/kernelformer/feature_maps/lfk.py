"""Positive features with learned projection rows (the learned feature kernel, LFK)."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.features import Features, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["Lfk"]


class Lfk(ProjectedFeatureMap):
    """phi_r(x) = exp(omega_r·x - ‖x‖²/2) / sqrt(M), omega learned per head.

    Starts at FAVOR+ with orthogonal draws, that is at an unbiased estimate of exp(x·y); the paper names
    this baseline without defining it, and this is the plain reading.

    Domain and numerics: positive at any magnitude; values in [0, 1].

    Args:
        num_features: M, any number.
        generator: draws the start of omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]; omega [H, D, M].

    References:
        Named as a baseline by Farzam et al. 2026, arXiv 2603.04127; the features are those of Choromanski et al.
        2021, arXiv 2009.14794.

    Example:
        >>> Lfk(head_dim=4, num_heads=2, num_features=16).omega.requires_grad
        True
    """

    is_positive = True
    learning_rate = 2e-2

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=True)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator))

    def phi(self, x: Tensor) -> Features:
        return exponential_features(self.project(x), -0.5 * x.square().sum(-1))
