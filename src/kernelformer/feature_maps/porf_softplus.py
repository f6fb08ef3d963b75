"""Softplus of projections that start orthonormal."""

from __future__ import annotations

from torch import Tensor

from kernelformer.feature_maps.coulomb import CoulombFeatureMap, log_softplus

__all__ = ["PorfSoftplus"]


class PorfSoftplus(CoulombFeatureMap):
    """phi_r(x) = softplus(omega_r·x / temperature) / Z(x), omega starting at orthonormal blocks.

    Differs from ``softplus`` in its start alone; omega is free afterwards.

    Domain and numerics: positive, ``values`` in [0, 1], each token's sum 1; computed from logarithms, so that no
    input makes all features vanish.

    Args:
        num_features: M, any number.
        temperature: divides the projections, positive.
        trainable: omega is learned if True, frozen if False.
        generator: draws omega; None is a fresh generator of seed 0.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], no log_scale.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, appendix D.

    Example:
        >>> import torch
        >>> PorfSoftplus(head_dim=4, num_heads=1, num_features=2).phi(torch.zeros(1, 1, 1, 4)).values.tolist()
        [[[[0.5, 0.5]]]]
    """

    is_orthonormal = True

    def log_feature(self, z: Tensor) -> Tensor:
        return log_softplus(z)
