"""What the maps of the Coulomb family share: one positive feature per projection, each token's sum 1.

Not a map itself. A feature f(omega_r·x / temperature) divided by the token's sum is a softmax over
log f, which neither overflows nor vanishes however far the projections lie from zero.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from kernelformer.feature_maps.checks import check_positive
from kernelformer.features import Features, ProjectedFeatureMap, orthogonal_gaussian, seeded

__all__ = ["CoulombFeatureMap", "log_softplus"]


class CoulombFeatureMap(ProjectedFeatureMap):
    """phi_r(x) = f(omega_r·x / temperature) / Σ_s f(omega_s·x / temperature), f > 0 given by its logarithm.

    The paper's features sum to sqrt(M), a constant factor that cancels. omega starts at independent N(0, I),
    or at orthonormal blocks of D columns where the class says ``is_orthonormal``. Authors write ``log_feature``.

    Args:
        num_features: M, any number.
        temperature: divides the projections, positive.
        trainable: omega is learned if True, frozen if False; the Coulomb method moves either.
        generator: draws the start of omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], in [0, 1], no log_scale.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, appendix D.
    """

    is_positive = True
    is_orthonormal: ClassVar[bool] = False

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
        self._draw(generator)

    @abstractmethod
    def log_feature(self, z: Tensor) -> Tensor:
        """log f(z), coordinate by coordinate, z [B, H, N, M]."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self._draw(generator)

    @torch.no_grad()
    def _draw(self, generator: torch.Generator | None) -> None:
        if self.is_orthonormal:
            drawn = orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator)
            drawn = drawn / drawn.norm(dim=1, keepdim=True)
        else:
            drawn = torch.randn(self.omega.shape, generator=seeded(generator), device="cpu")
        self.omega.copy_(drawn)

    def phi(self, x: Tensor) -> Features:
        return Features(self.log_feature(self.project(x) / self.temperature).softmax(-1))


def log_softplus(z: Tensor) -> Tensor:
    """log(log(1 + exp(z))), exact in float64 where softplus itself underflows."""
    border = -18.0
    low = z.clamp(max=border)
    high = z.clamp(min=border)
    # Below the border softplus(z) = exp(z) (1 - exp(z) / 2) to the last digit of float64.
    return torch.where(z < border, low - 0.5 * low.exp(), functional.softplus(high, threshold=40.0).log())
