"""Complex frequencies: the family that holds Fourier and exponential features at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.checks import check_even, check_floor
from kernelformer.features import Features, ProjectedFeatureMap, orthogonal_gaussian, seeded

__all__ = ["Spectral"]


class Spectral(ProjectedFeatureMap):
    """phi(x) = exp(a_i·x - s ‖x‖²) / sqrt(n) · [cos(omega_i·x), sin(omega_i·x)], i = 1 … n = M/2, all learned.

    At a = 0 and s = -1/2 it is Flexformer_s, at omega = 0 and s = 1/2 FAVOR+ with learned rows. For
    omega_i ~ N(0, f² I) and a_i ~ N(0, (1 - f²) I) with s = 1/2 - f² its mean is exp(x·y) whatever the share f² of
    Fourier: every start is an unbiased estimate of softmax, and f² moves it between the two.

    Domain and numerics: signed. ``values`` = phi / ‖phi‖, so ‖values‖ = 1 and by Cauchy and Schwarz
    |values_q·values_k| <= 1; ``log_scale`` = log ‖phi‖, so that the key mass is Σ ‖phi(k_j)‖ and the floor is relative
    to the largest denominator these keys could give. At any magnitude.

    Args:
        num_features: M, even.
        fourier_share: f² at the start, in [0, 1]. At 0 the gradient of omega starts at zero: sines vanish.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws a, then omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]; omega and growth (a) [H, D, M/2]; decay (s) [H].

    Raises:
        KernelformerError: M is odd, fourier_share or floor out of range.

    References:
        The product of the features of Zhang and Zhou 2026, arXiv 2606.27748, and of Choromanski et al. 2021,
        arXiv 2009.14794.

    Example:
        >>> import torch
        >>> values, *_ = Spectral(head_dim=4, num_heads=1, num_features=6).phi(30 * torch.ones(1, 1, 1, 4))
        >>> bool((values.norm() - 1).abs() < 1e-6)
        True
    """

    is_positive = False

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        fourier_share: float = 0.01,
        floor: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> None:
        check_even("spectral", num_features)
        check_floor(floor)
        if not 0 <= fourier_share <= 1:
            raise KernelformerError(f"fourier_share must lie in [0, 1], got {fourier_share}")
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features // 2, trainable=True)
        self.growth = nn.Parameter(torch.empty(num_heads, head_dim, num_features // 2))
        self.decay = nn.Parameter(torch.empty(num_heads))
        self.fourier_share = fourier_share
        self.floor = floor
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        generator = seeded(generator)
        columns = self.num_features // 2
        rows = orthogonal_gaussian(self.num_heads, self.head_dim, columns, generator)
        frequencies = orthogonal_gaussian(self.num_heads, self.head_dim, columns, generator)
        self.growth.copy_(math.sqrt(1.0 - self.fourier_share) * rows)
        self.omega.copy_(math.sqrt(self.fourier_share) * frequencies)
        self.decay.fill_(0.5 - self.fourier_share)

    def phi(self, x: Tensor) -> Features:
        exponents, angles = x @ self.growth.to(x.dtype), self.project(x)
        log_norm = 0.5 * (2.0 * exponents).logsumexp(-1)
        sizes = (exponents - log_norm[..., None]).exp()
        values = torch.stack([sizes * angles.cos(), sizes * angles.sin()], dim=-2).flatten(-2)
        decayed = self.decay.to(x.dtype)[:, None] * x.square().sum(-1)
        return Features(values, log_norm - decayed - 0.5 * math.log(angles.shape[-1]))
