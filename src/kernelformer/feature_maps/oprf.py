"""Optimal positive random features (FAVOR++)."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.feature_maps.moments import optimal_curvature, second_moments
from kernelformer.features import Features, Moments, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["Oprf"]


class Oprf(ProjectedFeatureMap):
    """phi_r(x) = (1 - 4a)^(D/4) / sqrt(M) · exp(a ‖omega_r‖² + sqrt(1 - 4a) omega_r·x - ‖x‖²/2), omega_r ~ N(0, I).

    E[phi(x)·phi(y)] = exp(x·y) for every a < 1/8. a = 0, the start, is FAVOR+. ``start_from``
    takes the a <= 0 that minimises the mean logarithm of the variance; then features are bounded:
    large projections of omega are damped. One a a head, closed form, nothing learned by gradient.

    Domain and numerics: positive at any magnitude; values in [0, 1].

    Args:
        num_features: M, any number.
        generator: draws omega; None is a fresh generator of seed 0. Redraw at the same a by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]. Buffers: omega [H, D, M], curvature [H].

    References:
        Likhosherstov et al. 2022, arXiv 2205.15317.

    Example:
        >>> import torch
        >>> oprf = Oprf(head_dim=4, num_heads=1, num_features=4096)
        >>> mean, square = torch.zeros(1, 4), 0.25 * torch.eye(4)[None]
        >>> oprf.start_from(Moments(mean, mean, square, square))
        >>> x = torch.full((1, 1, 1, 4), 0.5)
        >>> values, log_scale, _ = oprf.phi(x)
        >>> estimate = values.square().sum() * torch.exp(2 * log_scale.sum())
        >>> bool((estimate / torch.exp(x.square().sum()) - 1).abs() < 0.1)
        True
    """

    is_positive = True
    curvature: Tensor

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=False)
        self.register_buffer("curvature", torch.empty(num_heads))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.redraw(generator)
        self.curvature.zero_()

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw omega again; a stays."""
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator))

    @torch.no_grad()
    def start_from(self, moments: Moments) -> None:
        """Take the mean key as ``key_shift`` and the best a for independent queries and keys of these moments.

        Raises:
            KernelformerError: moments that are none.
        """
        super().start_from(moments)
        queries, keys = second_moments(moments, self.num_heads, self.head_dim)
        spread = torch.diagonal(queries + keys, dim1=-2, dim2=-1).mean(-1)
        self.curvature.copy_(optimal_curvature(spread))

    def phi(self, x: Tensor) -> Features:
        omega, a = self.omega.to(x.dtype), self.curvature.to(x.dtype)[:, None]
        gain = (1.0 - 4.0 * a).sqrt()
        exponents = gain[..., None] * self.project(x) + (a * omega.square().sum(1))[:, None]
        return exponential_features(exponents, -0.5 * x.square().sum(-1) + 0.5 * self.head_dim * gain.log())
