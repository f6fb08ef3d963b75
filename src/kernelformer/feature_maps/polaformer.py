"""Rectified powers of both signs (PolaFormer), as one kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.checks import fixed_width
from kernelformer.feature_maps.vanishing import key_features, query_features
from kernelformer.features import FeatureMap, Features

__all__ = ["Polaformer"]


class Polaformer(FeatureMap):
    """phi_k(x) = [x⁺, x⁻], phi_q(x) = [x⁺ + g x⁻, x⁻ + g x⁺], with x± = max(±x / s, 0)^p.

    k(q, k) = (q⁺·k⁺ + q⁻·k⁻) + g (q⁺·k⁻ + q⁻·k⁺): same-signed pairs, and opposite-signed ones at a share g.
    Learned per head and coordinate: s = softplus > 0, p = 1 + power_range · sigmoid in (1, 1 + power_range),
    g = sigmoid in (0, 1). One more feature gives a zero query the mean of the visible values.

    The paper runs the two streams as two attentions, each normalised by itself over one half of the value
    columns, and mixes the halves in the output projection. A feature map is one kernel for all columns,
    so here the streams are mixed inside the kernel. Their sum over the streams of numerators and
    denominators is exact; the paper's separate denominators, its depthwise convolution and its gate on the
    output are not part of it.

    Domain and numerics: positive; powers are computed from logarithms in float32 at least, the
    largest feature goes into ``log_scale``, ``values`` lie in [0, 1]. Powers p >= 1 of coordinates below 1e-7 or
    so may underflow to 0 in keys.

    Args:
        num_features: None or 2 · D + 1.
        power_range: p lies in (1, 1 + power_range) and starts in its middle.
        opposite: g at the start, in (0, 1).

    Shape:
        [B, H, N, D] -> values [B, H, N, 2 · D + 1], log_scale [B, H, N]; size, power and mix [H, 1, D].

    Raises:
        KernelformerError: power_range is not positive, opposite not in (0, 1).

    References:
        Meng et al. 2025, arXiv 2501.15061.

    Example:
        >>> import torch
        >>> polaformer = Polaformer(head_dim=1, num_heads=1, opposite=0.25)
        >>> q, k = torch.ones(1, 1, 1, 1), torch.tensor([1.0, -1.0])[None, None, :, None]
        >>> q, k = polaformer.phi_q(q), polaformer.phi(k)
        >>> (k.values @ q.values[0, 0, 0] * k.log_scale.exp()).detach()  # same sign, opposite sign
        tensor([[[1.0000, 0.2500]]])
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int | None = None,
        *,
        power_range: float = 4.0,
        opposite: float = 0.1,
        generator: torch.Generator | None = None,
    ) -> None:
        if not power_range > 0 or not 0 < opposite < 1:
            raise KernelformerError(
                f"power_range must be positive and opposite in (0, 1), got {power_range} and {opposite}"
            )
        super().__init__(head_dim, num_heads, fixed_width("polaformer", 2 * head_dim + 1, num_features))
        self.power_range = power_range
        self.opposite = opposite
        self.size = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.power = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.mix = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.size.fill_(math.log(math.expm1(1.0)))  # softplus gives 1
        self.power.zero_()
        self.mix.fill_(math.log(self.opposite / (1.0 - self.opposite)))

    def phi(self, x: Tensor) -> Features:
        plus, minus, log_scale = self._powers(x)
        return key_features(torch.cat([plus, minus], dim=-1), log_scale)

    def phi_q(self, x: Tensor) -> Features:
        plus, minus, log_scale = self._powers(x)
        share = self.mix.to(x.dtype).sigmoid()
        return query_features(torch.cat([plus + share * minus, minus + share * plus], dim=-1), log_scale)

    def _powers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        power = 1.0 + self.power_range * self.power.to(x.dtype).sigmoid()
        nonzero = x != 0
        # The logarithm of a zero never enters: its gradient would be NaN.
        size = nn.functional.softplus(self.size.to(x.dtype))
        logs = power * (torch.where(nonzero, x, 1.0).abs().log() - size.log())
        top = torch.where(nonzero, logs, -torch.inf).detach().amax(-1, keepdim=True)
        top = torch.where(top.isinf(), 0.0, top)
        values = torch.where(nonzero, (torch.where(nonzero, logs, top) - top).exp(), 0.0)
        return torch.where(x > 0, values, 0.0), torch.where(x < 0, values, 0.0), top[..., 0]
