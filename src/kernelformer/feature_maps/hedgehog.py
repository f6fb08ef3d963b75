"""Softmax of learned projections (Hedgehog)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.checks import check_even
from kernelformer.feature_maps.halves import two_softmaxes
from kernelformer.features import Features, FusedForm, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["Hedgehog"]


class Hedgehog(ProjectedFeatureMap):
    """phi(x) = [softmax(omegaᵀx + b), softmax(-omegaᵀx - b)], omega and b learned per head.

    The half-space form keeps the first half alone. Starts at D^(1/4) times the identity where omega is square, the
    identity for an input that is not scaled, else at random orthogonal columns of that norm; b starts at zero.

    Domain and numerics: positive, values in [0, 1], no log_scale: each half sums to one.

    Args:
        num_features: M, even; in the half-space form any number.
        half_space: phi(x) = softmax(omegaᵀx + b), with M projections instead of M / 2.
        generator: draws omega where it is not square; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M].

    References:
        Zhang et al. 2024, arXiv 2402.04347.

    Example:
        >>> import torch
        >>> Hedgehog(head_dim=4, num_heads=1, num_features=8).phi(torch.zeros(1, 1, 1, 4)).values.sum()
        tensor(2., grad_fn=<SumBackward0>)
    """

    is_positive = True
    learning_rate = 1e-1

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        half_space: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        if not half_space:
            check_even("hedgehog", num_features)
        columns = num_features if half_space else num_features // 2
        super().__init__(head_dim, num_heads, num_features, num_projections=columns, trainable=True)
        self.half_space = half_space
        self.bias = nn.Parameter(torch.empty(num_heads, 1, columns))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        columns = self.omega.shape[-1]
        unscaled = self.head_dim**0.25
        if columns == self.head_dim:
            self.omega.copy_(unscaled * torch.eye(self.head_dim, device="cpu").expand(self.omega.shape))
        else:
            drawn = orthogonal_gaussian(self.num_heads, self.head_dim, columns, generator)
            self.omega.copy_(unscaled * drawn / drawn.norm(dim=1, keepdim=True))
        self.bias.zero_()

    def phi(self, x: Tensor) -> Features:
        logits = self.project(x) + self.bias.to(x.dtype)
        return Features(logits.softmax(-1) if self.half_space else two_softmaxes(logits))

    def fused_form(self) -> FusedForm:
        bias = self.bias[:, 0]
        if self.half_space:
            return FusedForm(self.omega, bias, is_normalised=True)
        both = torch.cat([self.omega, -self.omega], dim=-1)
        return FusedForm(both, torch.cat([bias, -bias], dim=-1), groups=2, is_normalised=True)
