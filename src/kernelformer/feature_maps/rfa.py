"""Random features of the Gaussian kernel on the unit sphere (RFA)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.checks import check_even, check_floor, check_positive
from kernelformer.features import Features, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["Rfa", "sphere_features"]


class Rfa(ProjectedFeatureMap):
    """phi(x) = [sin(w_i·u), cos(w_i·u)] / sqrt(n), u = x / ‖x‖, w_i = sigma ⊙ omega_i / temperature, i = 1 … n = M/2.

    omega_i ~ N(0, I) frozen, sigma learned per head and coordinate, 1 at the start: there an unbiased estimate of
    exp(-‖u - v‖² / (2 temperature²)), on the unit sphere proportional to exp(u·v / temperature²). Only the
    direction of x counts; the softmax scale does not. The paper's gate makes it ``rfa_gated``.

    Domain and numerics: signed, ‖values‖ = 1. A zero x has u = 0. The engine keeps the denominator above
    ``floor`` times the key mass.

    Args:
        num_features: M, even.
        temperature: width of the kernel on the sphere, positive.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws omega; None is a fresh generator of seed 0. Redraw by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], no log_scale; omega [H, D, M/2]; sigma [H, 1, D].

    References:
        Peng et al. 2021, arXiv 2103.02143.

    Example:
        >>> import torch
        >>> rfa = Rfa(head_dim=4, num_heads=1, num_features=6)
        >>> x = torch.ones(1, 1, 1, 4)
        >>> torch.allclose(rfa.phi(x).values, rfa.phi(30 * x).values)
        True
    """

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
        check_even("rfa", num_features)
        check_positive("temperature", temperature)
        check_floor(floor)
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features // 2, trainable=False)
        self.sigma = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.temperature = temperature
        self.floor = floor
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.redraw(generator)
        self.sigma.fill_(1.0)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw omega again; sigma stays."""
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features // 2, generator))

    def phi(self, x: Tensor) -> Features:
        return Features(sphere_features(x, self.omega, self.sigma, self.temperature))


def sphere_features(x: Tensor, omega: Tensor, sigma: Tensor, temperature: float) -> Tensor:
    """[sin, cos] of the projections of x / ‖x‖, of norm 1: [B, H, N, D] -> [B, H, N, M]."""
    angles = (_unit(x) * sigma.to(x.dtype)) @ omega.to(x.dtype) / temperature
    values = torch.stack([angles.sin(), angles.cos()], dim=-2).flatten(-2)
    return values / math.sqrt(angles.shape[-1])


def _unit(x: Tensor) -> Tensor:
    """x / ‖x‖, zeros where x is zero, with finite gradients there."""
    top = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(top > 0, top, 1.0)
    squared = x.square().sum(-1, keepdim=True)
    return x * torch.where(squared > 0, squared, 1.0).rsqrt()
