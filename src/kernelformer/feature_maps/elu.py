"""The map of the Linear Transformer."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.checks import fixed_width
from kernelformer.features import FeatureMap, Features, FusedForm

__all__ = ["Elu"]


class Elu(FeatureMap):
    """phi(x) = elu(x) + 1, coordinate by coordinate; nothing is learned.

    Domain and numerics: positive at any magnitude; the largest feature goes into ``log_scale`` and
    ``values`` lie in [0, 1].

    Args:
        num_features: None or head_dim: the map keeps the width of its input.

    Shape:
        [B, H, N, D] -> values [B, H, N, D], log_scale [B, H, N].

    References:
        Katharopoulos et al. 2020, arXiv 2006.16236.

    Example:
        >>> import torch
        >>> Elu(head_dim=4, num_heads=1).phi(torch.zeros(1, 1, 1, 4)).values
        tensor([[[[1., 1., 1., 1.]]]])
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, fixed_width("elu", head_dim, num_features))

    def phi(self, x: Tensor) -> Features:
        # By its logarithm: elu(x) + 1 loses all digits below x = -17 and underflows to 0 below -88.
        exponents = torch.where(x > 0, x.clamp(min=0.0).log1p(), x)
        top = exponents.detach().amax(-1, keepdim=True)
        return Features((exponents - top).exp(), top[..., 0])

    def fused_form(self) -> FusedForm:
        return FusedForm(None)
