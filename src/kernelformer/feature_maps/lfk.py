"""Positive features with learned projection rows (the learned feature kernel, LFK)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.checks import check_positive
from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.features import Features, FusedForm, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["Lfk"]


class Lfk(ProjectedFeatureMap):
    """phi_r(x) = exp(omega_r·x - c ‖x‖² + tilt·x) / sqrt(M), omega, c and tilt learned per head.

    The paper names this baseline, the learned feature kernel, without defining it. The plain reading learns omega
    alone: ``weighted=False``, c = 1/2, tilt = 0; with ``projection_scale=1`` that starts at FAVOR+, an unbiased
    estimate of exp(x·y). Learning c and tilt, which weigh a key as such, and starting from shorter rows, that is
    from a flatter kernel, fitted pretrained queries and keys better.

    Domain and numerics: positive at any magnitude; values in [0, 1].

    Args:
        num_features: M, any number.
        projection_scale: omega starts at orthogonal draws from N(0, I) times this, positive.
        weighted: learn c and tilt, started at 1/2 and 0.
        generator: draws the start of omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]; omega [H, D, M]; weighted: damping (c) [H],
        tilt [H, D, 1].

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
        projection_scale: float = 0.3,
        weighted: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        check_positive("projection_scale", projection_scale)
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=True)
        self.projection_scale = projection_scale
        self.damping = nn.Parameter(torch.empty(num_heads)) if weighted else None
        self.tilt = nn.Parameter(torch.empty(num_heads, head_dim, 1)) if weighted else None
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        drawn = orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator)
        self.omega.copy_(self.projection_scale * drawn)
        if self.damping is not None:
            self.damping.fill_(0.5)
        if self.tilt is not None:
            self.tilt.zero_()

    def phi(self, x: Tensor) -> Features:
        square = x.square().sum(-1)
        if self.damping is None or self.tilt is None:
            return exponential_features(self.project(x), -0.5 * square)
        weight = (x @ self.tilt.to(x.dtype))[..., 0] - self.damping.to(x.dtype)[:, None] * square
        return exponential_features(self.project(x), weight)

    def fused_form(self) -> FusedForm:
        damping = torch.full_like(self.omega[:, 0, 0], 0.5) if self.damping is None else self.damping
        tilt = None if self.tilt is None else self.tilt[..., 0]
        return FusedForm(self.omega, tilt=tilt, damping=damping, constant=-0.5 * math.log(self.num_features))
