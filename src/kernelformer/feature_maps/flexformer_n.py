"""Learned spectral frequencies, non-stationary kernel (Flexformer_n)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.circle import TURN, circle, cosine
from kernelformer.feature_maps.flexformer import FlexformerFeatureMap
from kernelformer.features import seeded

__all__ = ["FlexformerN"]


class FlexformerN(FlexformerFeatureMap):
    """phi(x) = e(x) / (2 sqrt(n)) · [cos ω1ᵢᵀx + cos ω2ᵢᵀx, sin ω1ᵢᵀx + sin ω2ᵢᵀx], i = 1 … n = M/2.

    e(x) = exp(‖x‖² sqrt(D) / exp(tau)), which in the units of the unscaled input is the paper's
    exp(‖x‖² / exp(tau)). Both sets of frequencies and tau are learned per head. With ω1 = ω2 and
    exp(tau) = 2 sqrt(D) it is Flexformer_s (Yaglom's theorem holds Bochner's). The paper states no start values; the
    defaults are those that fitted pretrained queries and keys best.

    Domain and numerics: signed, ‖values‖ <= 1; e(x) is ``log_scale``. The engine keeps the
    denominator above ``floor`` times the key mass.

    Args:
        num_features: M, even.
        frequency_scale: standard deviation of the start of (ω1 + ω2) / 2; 1 is softmax's, small is flat.
        spread: that of (ω1 - ω2) / 2 in units of ``frequency_scale``; 0 is Flexformer_s.
        tau: start of tau; None is log(10 sqrt(D)), a flat one; log(2 sqrt(D)) is the softmax kernel's.
        phase: learn phases: angles ω1ᵀx + b1 and ω2ᵀx + b2.
        phase_spread: b1 starts at U(-phase_spread, phase_spread), b2 at -b1. Each pair has the factor
            cos((ω1 - ω2)ᵀx / 2 + b1), even in x at 0, odd at pi/2. None is pi/2 with phase, else 0.
        tilt: multiply phi(x) by exp(tilt·x), tilt learned from 0. Beyond the paper: cos and sin alone are poor at
            weighing a key as such.
        shared: one set of frequencies for queries and keys, as in the paper; False starts two equal sets.
        angle_scale: ``start_from`` scales omega so that this is the root mean square of omegaᵀx over the data;
            None leaves omega.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]; omega [H, D, M] holds ω1, then ω2; tau [H].
        Unshared: omega_q, too; with phase: bias, and bias_q, [H, 1, M]; with tilt: tilt [H, D, 1].

    References:
        Zhang and Zhou 2026, arXiv 2606.27748, equation 6.

    Example:
        >>> import torch
        >>> FlexformerN(head_dim=4, num_heads=2, num_features=6).omega.shape
        torch.Size([2, 4, 6])
    """

    name = "flexformer_n"
    turns_per_angle = 0.5 * TURN

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        frequency_scale: float = 0.2,
        spread: float = 1.0,
        tau: float | None = None,
        phase: bool = True,
        phase_spread: float | None = None,
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
            num_projections=num_features,
            phase=phase,
            tilt=tilt,
            shared=shared,
            angle_scale=angle_scale,
            floor=floor,
        )
        if phase_spread is None:
            phase_spread = 0.5 * math.pi if phase else 0.0
        if not 0 <= phase_spread <= math.pi or (phase_spread > 0 and not phase):
            raise KernelformerError(f"phase_spread must lie in [0, pi] and needs phase=True, got {phase_spread}")
        self.phase_spread = phase_spread
        self.tau = nn.Parameter(torch.empty(num_heads))
        self.frequency_scale = frequency_scale
        self.spread = spread
        self.tau_start = math.log(10.0 * math.sqrt(head_dim)) if tau is None else tau
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        generator = seeded(generator)
        super().reset_parameters(generator)
        self.tau.fill_(self.tau_start)
        if self.phase_spread > 0:
            half = self.omega[:, :1, ::2].shape
            drawn = self.phase_spread * (2.0 * torch.rand(half, generator=generator, device="cpu") - 1.0)
            for bias in (self.bias, self.bias_q):
                if bias is not None:
                    bias.copy_(torch.cat([drawn, -drawn], dim=-1))

    def draw(self, generator: torch.Generator | None) -> Tensor:
        drawn = torch.randn(2, *self.omega[..., ::2].shape, generator=seeded(generator), device="cpu")
        half = self.spread * drawn[1]
        return self.frequency_scale * torch.cat([drawn[0] + half, drawn[0] - half], dim=-1)

    def values(self, turns: Tensor) -> Tensor:
        # cos a + cos b = 2 cos(mean) cos(half the difference), and so for sin: three evaluations instead of four.
        first, second = turns.chunk(2, dim=-1)
        return circle(first + second, cosine(first - second, 1.0 / math.sqrt(first.shape[-1])))

    def rate(self, dtype: torch.dtype) -> Tensor:
        return math.sqrt(self.head_dim) * torch.exp(-self.tau.to(dtype))
