"""Rectified coordinates with a cosine of the distance (cosFormer)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.checks import fixed_width
from kernelformer.feature_maps.vanishing import key_features, query_features, scaled
from kernelformer.features import FeatureMap, Features

__all__ = ["Cosformer"]


class Cosformer(FeatureMap):
    """phi(x_i) = [max(x_i, 0) cos(t_i), max(x_i, 0) sin(t_i)], t_i = pi (i + 1) / (2 max_length), i = 0, 1, ….

    k(q_i, k_j) = max(q_i, 0)·max(k_j, 0) · cos(t_i - t_j): near tokens weigh more. Nothing is learned. One
    more feature gives a query without a positive coordinate, or with none in common with any visible key, the
    mean of the visible values.

    ``max_length`` is fixed at construction, so that a stream gives what the whole sequence gives. Positions
    count every token, padding too: pad on the right.

    Domain and numerics: positive, as both angles lie in (0, pi/2]; the largest feature goes into
    ``log_scale``, ``values`` lie in [0, 1].

    Args:
        num_features: None or 2 · D + 1.
        max_length: the longest sequence; cosine falls to zero at this distance.

    Shape:
        [B, H, N, D] -> values [B, H, N, 2 · D + 1], log_scale [B, H, N].

    Raises:
        KernelformerError: max_length is not positive, or a position is beyond it.

    References:
        Qin et al. 2022, arXiv 2202.08791.

    Example:
        >>> import torch
        >>> cosformer = Cosformer(head_dim=2, num_heads=1, max_length=4)
        >>> cosformer.map_k(torch.ones(1, 1, 5, 2))
        Traceback (most recent call last):
        ...
        kernelformer.errors.KernelformerError: a position lies beyond max_length=4: build the map with a larger one
    """

    is_positive = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int | None = None,
        *,
        max_length: int = 8192,
        generator: torch.Generator | None = None,
    ) -> None:
        if max_length < 1:
            raise KernelformerError(f"max_length must be a positive integer, got {max_length}")
        super().__init__(head_dim, num_heads, fixed_width("cosformer", 2 * head_dim + 1, num_features))
        self.max_length = max_length

    def phi(self, x: Tensor) -> Features:
        return self.phi_at(x, None, False)

    def phi_q(self, x: Tensor) -> Features:
        return self.phi_at(x, None, True)

    def phi_at(self, x: Tensor, positions: Tensor | None, is_query: bool) -> Features:
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        self._check(positions)
        angles = ((positions + 1).to(x.dtype) * (math.pi / (2 * self.max_length)))[:, None]
        values, log_scale = scaled(x.relu())
        # The cosine of pi/2 rounds to a number that may be negative; a positive map has none.
        values = torch.cat([values * angles.cos().clamp_min(0.0), values * angles.sin()], dim=-1)
        return query_features(values, log_scale) if is_query else key_features(values, log_scale)

    def _check(self, positions: Tensor) -> None:
        message = f"a position lies beyond max_length={self.max_length}: build the map with a larger one"
        inside = (positions < self.max_length).all()
        if torch.compiler.is_compiling():
            # A compiled graph can't raise our error; it stops at the device instead.
            torch._assert_async(inside, message)
        elif not positions.is_meta and not bool(inside):
            raise KernelformerError(message)
