"""Fixed random features that estimate nothing: a reference point."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.features import Features, ProjectedFeatureMap, seeded

__all__ = ["Random"]


class Random(ProjectedFeatureMap):
    """phi(x) = softmax(omegaᵀx) over the features, omega_r ~ N(0, I) frozen.

    The form of the learned maps with nothing learned, and no estimate of softmax: what is gained over it is
    gained by learning or by estimating. The paper names this baseline without defining it.

    Domain and numerics: positive, values in [0, 1], each token's sum 1.

    Args:
        num_features: M, any number.
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], no log_scale.

    References:
        A baseline of Farzam et al. 2026, arXiv 2603.04127.

    Example:
        >>> sum(p.numel() for p in Random(head_dim=4, num_heads=2, num_features=16).parameters())
        0
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=False)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.omega.copy_(torch.randn(self.omega.shape, generator=seeded(generator), device="cpu"))

    def phi(self, x: Tensor) -> Features:
        return Features(self.project(x).softmax(-1))
