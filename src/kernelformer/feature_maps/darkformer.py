"""Positive random features with a learned covariance (DARKFormer)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.feature_maps.moments import check_largest, optimal_proposal, second_moments
from kernelformer.features import Features, FusedForm, Moments, ProjectedFeatureMap, orthogonal_gaussian, seeded

__all__ = ["Darkformer"]

_STARTS = ("identity", "whitened", "optimal")


class Darkformer(ProjectedFeatureMap):
    """phi_r(x) = exp(omega_r·Mx - ‖Mx‖²/2) / sqrt(M'), omega_r ~ N(0, I) frozen, M learned per head.

    E[phi(x)·phi(y)] = exp(xᵀΣy) with Σ = MᵀM: FAVOR+ whose projections have a learned covariance.
    M' is ``num_features``; M, called ``root``, starts at the identity, that is at FAVOR+, and for a rank
    below D at random rows with E[MᵀM] = I.

    Domain and numerics: positive at any magnitude; values in [0, 1].

    Args:
        num_features: any number.
        trainable_projections: learn omega, too (the learned feature kernel, LFK, for M = I).
        rank: rows of M, 1 … D; None is D.
        shared: one M for all heads.
        start: what ``start_from`` makes of M, with Λ the second moment of the scaled queries and keys:
            "identity" leaves it; "whitened" takes D^(-1/4) Λ^(-1/2), after which inputs have covariance
            D^(-1/2) I, the temperature of softmax on whitened inputs; "optimal" takes the root of
            Σ* = (I + 2Λ)(I - 2Λ)⁻¹, the data's optimal proposal. A lower rank keeps the largest axes.
        largest: for "optimal", eigenvalues of Λ above it are taken as it, in (0, 0.5); None raises instead.
        generator: draws omega; None is a fresh generator of seed 0. Redraw at the same M by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, num_features], log_scale [B, H, N]; root [H, rank, D], or [1, rank, D] if
        shared; omega [H, rank, num_features].

    Raises:
        KernelformerError: rank, start or largest out of range.

    References:
        Farzam et al. 2026, arXiv 2603.04127, equation 3, theorem 3.2 and proposition C.1.

    Example:
        >>> import torch
        >>> Darkformer(head_dim=4, num_heads=2, num_features=16).root.shape
        torch.Size([2, 4, 4])
    """

    is_positive = True
    learning_rate = 2e-2

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        trainable_projections: bool = False,
        rank: int | None = None,
        shared: bool = False,
        start: str = "identity",
        largest: float | None = 0.4,
        generator: torch.Generator | None = None,
    ) -> None:
        check_largest(largest)
        if start not in _STARTS:
            raise KernelformerError(f"start must be one of {', '.join(_STARTS)}, got {start!r}")
        super().__init__(
            head_dim, num_heads, num_features, num_projections=num_features, trainable=trainable_projections
        )
        self.rank = head_dim if rank is None else rank
        if not 1 <= self.rank <= head_dim:
            raise KernelformerError(f"rank must lie in 1 … head_dim = {head_dim}, got {rank}")
        if self.rank < head_dim:
            omega = torch.empty(num_heads, self.rank, num_features)
            self.omega = nn.Parameter(omega) if trainable_projections else omega
        self.start = start
        self.largest = largest
        self.root = nn.Parameter(torch.empty(1 if shared else num_heads, self.rank, head_dim))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        generator = seeded(generator)
        self.redraw(generator)
        if self.rank == self.head_dim:
            self.root.copy_(torch.eye(self.head_dim, device="cpu").expand(self.root.shape))
        else:
            rows = orthogonal_gaussian(self.root.shape[0], self.head_dim, self.rank, generator).mT
            self.root.copy_(math.sqrt(self.head_dim / self.rank) * rows / rows.norm(dim=-1, keepdim=True))

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw omega again; M stays."""
        self.omega.copy_(orthogonal_gaussian(self.num_heads, self.rank, self.num_features, generator))

    @torch.no_grad()
    def start_from(self, moments: Moments) -> None:
        """Take the mean key as ``key_shift``, and M as ``start`` says.

        Raises:
            KernelformerError: moments that are none; not invertible ("whitened"); beyond 0.5 ("optimal").
        """
        super().start_from(moments)
        if self.start == "identity":
            return
        queries, keys = second_moments(moments, self.num_heads, self.head_dim)
        if self.root.shape[0] == 1:
            queries, keys = queries.mean(0, keepdim=True), keys.mean(0, keepdim=True)
        if self.start == "whitened":
            root = self.head_dim**-0.25 * self._root_of(0.5 * (queries + keys), -0.5)
        else:
            root = self._root_of(optimal_proposal(queries, keys, self.largest), 0.5)
        self.root.copy_(root)

    def _root_of(self, matrix: Tensor, power: float) -> Tensor:
        """matrix ** power, or the rows of it along the ``rank`` largest axes of the matrix."""
        values, vectors = torch.linalg.eigh(matrix)
        values, vectors = values[..., -self.rank :], vectors[..., -self.rank :]
        if bool((values <= torch.finfo(torch.float32).eps * values[..., -1:]).any()):
            raise KernelformerError(
                "these moments must be invertible, but a direction carries no variance: gather more tokens than "
                "head_dim, or take a lower rank"
            )
        rows: Tensor = values.pow(power)[..., None] * vectors.mT
        return vectors @ rows if self.rank == self.head_dim else rows

    def phi(self, x: Tensor) -> Features:
        x = x @ self.root.to(x.dtype).transpose(-1, -2)
        return exponential_features(self.project(x), -0.5 * x.square().sum(-1))

    def fused_form(self) -> FusedForm:
        root = self.root.mT.expand(self.num_heads, self.head_dim, self.rank)
        return FusedForm(root @ self.omega, root=math.sqrt(0.5) * root, constant=-0.5 * math.log(self.num_features))
