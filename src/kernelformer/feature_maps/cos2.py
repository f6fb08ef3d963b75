"""Squared cosine of projections."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelformer.feature_maps.checks import check_positive
from kernelformer.features import Features, ProjectedFeatureMap, seeded

__all__ = ["Cos2"]


class Cos2(ProjectedFeatureMap):
    """phi_r(x) = cos(omega_r·x / temperature + b_r)² / Z(x), b_r ~ U[0, 2 pi) fixed, Z the token's sum.

    omega starts at independent N(0, I).

    Domain and numerics: positive, ``values`` in [0, 1], each token's sum 1.

    Args:
        num_features: M, any number.
        temperature: divides the projections, positive.
        trainable: omega is learned if True, frozen if False; the phases are never learned.
        generator: draws omega, then the phases; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], no log_scale; phase [H, 1, M], a buffer.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, appendix D.

    Example:
        >>> import torch
        >>> Cos2(head_dim=4, num_heads=1).phi(torch.ones(1, 1, 1, 4)).values.sum().item()  # doctest: +ELLIPSIS
        1.0...
    """

    is_positive = True
    phase: Tensor

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        temperature: float = 1.0,
        trainable: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        check_positive("temperature", temperature)
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=trainable)
        self.temperature = temperature
        self.register_buffer("phase", torch.empty(num_heads, 1, num_features))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        generator = seeded(generator)
        self.omega.copy_(torch.randn(self.omega.shape, generator=generator, device="cpu"))
        self.phase.copy_(2.0 * math.pi * torch.rand(self.phase.shape, generator=generator, device="cpu"))

    def phi(self, x: Tensor) -> Features:
        squared = (self.project(x) / self.temperature + self.phase.to(x.dtype)).cos().square()
        # No floating-point number is an odd multiple of pi/2, hence the sum is never zero.
        return Features(squared / squared.sum(-1, keepdim=True))
