"""Random features of the Gaussian kernel on the unit sphere (RFA)."""

from __future__ import annotations

from torch import Tensor

from kernelformer.feature_maps.sphere import SphereFeatureMap
from kernelformer.features import Features

__all__ = ["Rfa"]


class Rfa(SphereFeatureMap):
    """phi(x) = [sin(w_i·u), cos(w_i·u)] / sqrt(n), u = x / ‖x‖, w_i = sigma ⊙ omega_i / temperature, i = 1 … n = M/2.

    omega_i ~ N(0, I) frozen, sigma learned per head and coordinate, 1 at the start: there an unbiased estimate of
    exp(-‖u - v‖² / (2 temperature²)), on the unit sphere proportional to exp(u·v / temperature²). Only the
    direction of x counts; the softmax scale does not. The paper's gate makes it ``rfa_gated``.

    Domain and numerics: signed, ‖values‖ = 1. A zero x has u = 0. The engine keeps the denominator above
    ``floor`` times the key mass.

    Args:
        num_features: M, even.
        temperature: width of the kernel on the sphere, positive.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws omega; None is a fresh generator of seed 0. Redraw by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], no log_scale; omega [H, D, M/2]; sigma [H, 1, D].

    References:
        Peng et al. 2021, arXiv 2103.02143.

    Example:
        >>> import torch
        >>> rfa = Rfa(head_dim=4, num_heads=1, num_features=6)
        >>> x = torch.ones(1, 1, 1, 4)
        >>> torch.allclose(rfa.phi(x).values, rfa.phi(30 * x).values)
        True
    """

    name = "rfa"

    def phi(self, x: Tensor) -> Features:
        return Features(self.values(x))
