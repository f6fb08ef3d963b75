"""Optimal positive random features with an axis each (dense-exponential)."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.feature_maps.moments import optimal_curvature, second_moments
from kernelformer.features import Features, Moments, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["DenseExponential"]


class DenseExponential(ProjectedFeatureMap):
    """phi_r(x) = Π_d (1 - 4a_d)^(1/4) / sqrt(M) · exp(Σ_d a_d omega_rd² + omega_r·(I - 4A)^(1/2) Qᵀ x' - ‖x'‖²/2).

    x' = b ⊙ x for queries and x / b for keys, A = diag(a), omega_r ~ N(0, I). E[phi(x)·phi(y)] = exp(x·y) for
    every a < 1/8, orthogonal Q and b > 0. a = 0, Q = I, b = 1, the start, is FAVOR+. ``start_from``
    sets b to give queries and keys the same size along every axis, Q to the principal axes of q' + k', and
    each a_d to the minimum of the mean logarithm of the variance. Closed form, nothing learned by gradient.

    Domain and numerics: positive at any magnitude; values in [0, 1]. Unlike ``SoftmaxSampling`` it holds
    for second moments of any size.

    Args:
        num_features: M, any number.
        generator: draws omega; None is a fresh generator of seed 0. Redraw at the same a, Q, b by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]. Buffers: omega [H, D, M], curvature [H, D],
        basis [H, D, D], balance [H, 1, D].

    References:
        Likhosherstov et al. 2023, arXiv 2302.00787 (the symmetric dense features, with the balance of the
        scaled asymmetric ones).

    Example:
        >>> import torch
        >>> dense = DenseExponential(head_dim=4, num_heads=1, num_features=4096)
        >>> mean, square = torch.zeros(1, 4), torch.diag(torch.tensor([1.0, 0.1, 0.1, 0.1]))[None]
        >>> dense.start_from(Moments(mean, mean, square, square))
        >>> x = torch.tensor([1.0, 0.3, 0.3, 0.3])[None, None, None]
        >>> values, log_scale, _ = dense.phi(x)
        >>> estimate = values.square().sum() * torch.exp(2 * log_scale.sum())
        >>> bool((estimate / torch.exp(x.square().sum()) - 1).abs() < 0.1)
        True
    """

    is_positive = True
    curvature: Tensor
    basis: Tensor
    balance: Tensor

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=False)
        self.register_buffer("curvature", torch.empty(num_heads, head_dim))
        self.register_buffer("basis", torch.empty(num_heads, head_dim, head_dim))
        self.register_buffer("balance", torch.empty(num_heads, 1, head_dim))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.redraw(generator)
        self.curvature.zero_()
        self.basis.copy_(torch.eye(self.head_dim, device="cpu").expand(self.basis.shape))
        self.balance.fill_(1.0)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw omega again; a, Q and b stay."""
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator))

    @torch.no_grad()
    def start_from(self, moments: Moments) -> None:
        """Take the mean key as ``key_shift`` and the best a, Q and b for independent queries and keys of these moments.

        Raises:
            KernelformerError: moments that are none.
        """
        super().start_from(moments)
        queries, keys = second_moments(moments, self.num_heads, self.head_dim)
        sizes_q, sizes_k = (torch.diagonal(m, dim1=-2, dim2=-1) for m in (queries, keys))
        both = (sizes_q > 0) & (sizes_k > 0)
        # An axis without variance on one side contributes nothing to q·k, and can't be balanced.
        ratio = torch.where(both, sizes_k, 1.0) / torch.where(both, sizes_q, 1.0)
        balance = ratio.pow(0.25)[:, None]
        summed = balance.mT * queries * balance + keys / balance / balance.mT
        spreads, basis = torch.linalg.eigh(summed)
        self.curvature.copy_(optimal_curvature(spreads.clamp_min(0.0)))
        self.basis.copy_(basis)
        self.balance.copy_(balance)

    def phi(self, x: Tensor) -> Features:
        return self._features(x / self.balance.to(x.dtype))

    def phi_q(self, x: Tensor) -> Features:
        return self._features(x * self.balance.to(x.dtype))

    def _features(self, x: Tensor) -> Features:
        omega, a = self.omega.to(x.dtype), self.curvature.to(x.dtype)
        gain = (1.0 - 4.0 * a).sqrt()
        turned = (x @ self.basis.to(x.dtype)) * gain[:, None]
        exponents = self.project(turned) + (a[..., None] * omega.square()).sum(1)[:, None]
        offset = -0.5 * x.square().sum(-1) + 0.5 * gain.log().sum(-1)[:, None]
        return exponential_features(exponents, offset)
