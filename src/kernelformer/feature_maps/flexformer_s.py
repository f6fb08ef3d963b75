"""Learned spectral frequencies, stationary kernel (Flexformer_s)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelformer.feature_maps.circle import circle
from kernelformer.feature_maps.flexformer import FlexformerFeatureMap
from kernelformer.features import seeded

__all__ = ["FlexformerS"]


class FlexformerS(FlexformerFeatureMap):
    """phi(x) = exp(‖x‖²/2) / sqrt(n) · [cos(omega_iᵀx), sin(omega_iᵀx)], i = 1 … n = M/2, omega learned.

    For omega_i ~ N(0, I) an unbiased estimate of exp(x·y): the softmax kernel is a Gaussian kernel
    of x - y times a factor of each side (Bochner).

    Domain and numerics: signed, ‖values‖ = 1; the factor exp(‖x‖²/2) is ``log_scale``. The engine keeps the
    denominator above ``floor`` times the key mass.

    Args:
        num_features: M, even.
        frequency_scale: standard deviation of the start of omega; 1 is softmax, small is flat.
        phase: learn a phase b: angles omegaᵀx + b. With shared frequencies it cancels in this stationary kernel.
        tilt: multiply phi(x) by exp(tilt·x), tilt learned from 0.
        shared: one set of frequencies for queries and keys, as in the paper; False starts two equal sets.
        angle_scale: ``start_from`` scales omega so that this is the root mean square of omegaᵀx over the data;
            None leaves omega.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]; omega [H, D, M/2].
        Unshared: omega_q, too; with phase: bias, and bias_q, [H, 1, M/2]; with tilt: tilt [H, D, 1].

    References:
        Zhang and Zhou 2026, arXiv 2606.27748, equation 5.

    Example:
        >>> import torch
        >>> values, *_ = FlexformerS(head_dim=4, num_heads=1, num_features=6).phi(torch.ones(1, 1, 1, 4))
        >>> bool((values.norm() - 1).abs() < 1e-6)
        True
    """

    name = "flexformer_s"

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        frequency_scale: float = 0.3,
        phase: bool = False,
        tilt: bool = True,
        shared: bool = True,
        angle_scale: float | None = None,
        floor: float = 0.01,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            head_dim,
            num_heads,
            num_features,
            num_projections=num_features // 2,
            phase=phase,
            tilt=tilt,
            shared=shared,
            angle_scale=angle_scale,
            floor=floor,
        )
        self.frequency_scale = frequency_scale
        self.reset_parameters(generator)

    def draw(self, generator: torch.Generator | None) -> Tensor:
        return self.frequency_scale * torch.randn(self.omega.shape, generator=seeded(generator), device="cpu")

    def values(self, turns: Tensor) -> Tensor:
        return circle(turns, turns.new_tensor(1.0 / math.sqrt(turns.shape[-1])))

    def rate(self, dtype: torch.dtype) -> Tensor:
        return torch.full_like(self.omega[:, 0, 0], 0.5, dtype=dtype)
