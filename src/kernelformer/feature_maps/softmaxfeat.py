"""Softmax over projections."""

from __future__ import annotations

from torch import Tensor

from kernelformer.feature_maps.coulomb import CoulombFeatureMap

__all__ = ["Softmaxfeat"]


class Softmaxfeat(CoulombFeatureMap):
    """phi(x) = softmax(omegaᵀx / temperature) over the features.

    One half of Hedgehog, without bias; omega starts at independent N(0, I).

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
        >>> Softmaxfeat(head_dim=4, num_heads=1, num_features=2).phi(torch.zeros(1, 1, 1, 4)).values.tolist()
        [[[[0.5, 0.5]]]]
    """

    def log_feature(self, z: Tensor) -> Tensor:
        return z
