"""What ``rfa`` and ``rfa_gated`` share: sin and cos of projections of the direction of x. Not a map itself."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.checks import check_even, check_floor, check_positive
from kernelformer.features import ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["SphereFeatureMap"]


class SphereFeatureMap(ProjectedFeatureMap):
    """Frozen omega, learned sigma, and ``values``; authors write ``phi``, and ``add_parameters`` for what is theirs.

    Shape:
        omega [H, D, M/2]; sigma [H, 1, D].

    References:
        Peng et al. 2021, arXiv 2103.02143.
    """

    name: ClassVar[str]
    is_positive = False

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        temperature: float = 1.0,
        floor: float = 0.05,
        generator: torch.Generator | None = None,
    ) -> None:
        check_even(self.name, num_features)
        check_positive("temperature", temperature)
        check_floor(floor)
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features // 2, trainable=False)
        self.sigma = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.temperature = temperature
        self.floor = floor
        self.add_parameters()
        self.reset_parameters(generator)

    def add_parameters(self) -> None:
        """Parameters beside sigma, before ``reset_parameters`` gives all of them their start."""

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.redraw(generator)
        self.sigma.fill_(1.0)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw omega again; what is learned stays."""
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features // 2, generator))

    def values(self, x: Tensor) -> Tensor:
        """[sin, cos] of the projections of x / ‖x‖, of norm 1: [B, H, N, D] -> [B, H, N, M]."""
        angles = self.project(_unit(x) * self.sigma.to(x.dtype)) / self.temperature
        values = torch.stack([angles.sin(), angles.cos()], dim=-2).flatten(-2)
        return values / math.sqrt(angles.shape[-1])


def _unit(x: Tensor) -> Tensor:
    """x / ‖x‖, zeros where x is zero, with finite gradients there."""
    top = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(top > 0, top, 1.0)
    squared = x.square().sum(-1, keepdim=True)
    return x * torch.where(squared > 0, squared, 1.0).rsqrt()
