"""Kernels in float64, and whether a random one has the mean that it claims."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import kernelformer as kf
from kernelformer.features import Moments

Kernel = Callable[[kf.FeatureMap, Tensor, Tensor], Tensor]


def kernel_of(feature_map: kf.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    """phi_q(x)·phi_k(y) of each head [H, N, S], for inputs [N, D], [S, D] that are already scaled."""
    q, k = (t.double().expand(1, feature_map.num_heads, *t.shape) for t in (x, y))
    positions_q, positions_k = torch.arange(x.shape[0]), torch.arange(y.shape[0])
    q_values, q_log, _ = feature_map.phi_at(q, positions_q, True)
    k_values, k_log, _ = feature_map.phi_at(k, positions_k, False)
    product = q_values @ k_values.mT
    for log_scale, axis in ((q_log, -1), (k_log, -2)):
        if log_scale is not None:
            product = product * log_scale.exp().unsqueeze(axis)
    return product[0].detach()


@pytest.fixture
def kernel() -> Kernel:
    return kernel_of


@pytest.fixture
def assert_mean() -> Callable[[kf.FeatureMap, Tensor, Tensor, Tensor], None]:
    """Heads are independent draws: their mean lies within 4 standard errors of the target, and these are small."""

    def check(feature_map: kf.FeatureMap, x: Tensor, y: Tensor, target: Tensor) -> None:
        drawn = kernel_of(feature_map, x, y)
        error = drawn.std(0) / math.sqrt(drawn.shape[0])
        assert (error < 0.05 * target.abs().clamp_min(0.1)).all(), "too few draws to tell"
        assert ((drawn.mean(0) - target).abs() < 4 * error + 1e-12).all()

    return check


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    """Some queries [3, 5] and keys [4, 5] of modest norm."""
    generator = torch.Generator().manual_seed(3)
    draw = 0.3 * torch.randn(7, 5, generator=generator, dtype=torch.float64)
    return draw[:3], draw[3:]


@pytest.fixture
def seen() -> Callable[..., Moments]:
    """Moments of mean zero with these second moments, for every head."""

    def moments(num_heads: int, queries: Tensor, keys: Tensor | None = None) -> Moments:
        keys = queries if keys is None else keys
        mean = torch.zeros(num_heads, queries.shape[-1])
        return Moments(mean, mean, queries.expand(num_heads, -1, -1), keys.expand(num_heads, -1, -1))

    return moments
