"""The Linear Transformer's feature on learned projections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.coulomb import CoulombFeatureMap

__all__ = ["EluProjected"]


class EluProjected(CoulombFeatureMap):
    """phi_r(x) = (elu(omega_r·x / temperature + b_r) + 1) / Z(x), Z the token's sum; omega and b learned.

    omega starts at independent N(0, I), b at zero.

    Domain and numerics: positive, ``values`` in [0, 1], each token's sum 1; computed from logarithms, so that no
    input makes all features vanish.

    Args:
        num_features: M, any number.
        temperature: divides the projections, positive.
        trainable: omega and b are learned if True, frozen if False.
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], no log_scale; bias [H, 1, M].

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, appendix D.

    Example:
        >>> import torch
        >>> EluProjected(head_dim=4, num_heads=1, num_features=2).phi(torch.zeros(1, 1, 1, 4)).values.tolist()
        [[[[0.5, 0.5]]]]
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        temperature: float = 1.0,
        trainable: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            head_dim, num_heads, num_features, temperature=temperature, trainable=trainable, generator=generator
        )
        bias = torch.zeros(num_heads, 1, num_features)
        if trainable:
            self.bias: Tensor = nn.Parameter(bias)
        else:
            self.register_buffer("bias", bias)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        self.bias.zero_()

    def log_feature(self, z: Tensor) -> Tensor:
        z = z + self.bias.to(z.dtype)
        # log(elu(z) + 1) is z itself below zero.
        return torch.where(z > 0, z.clamp(min=0.0).log1p(), z)
