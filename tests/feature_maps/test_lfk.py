from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Favor, Lfk


def test_starts_at_favor_and_learns_its_rows(kernel, pair) -> None:
    lfk, favor = Lfk(5, 2, 12, projection_scale=1.0, weighted=False), Favor(5, 2, 12)
    assert torch.equal(kernel(lfk, *pair), kernel(favor, *pair))
    assert [name for name, _ in lfk.named_parameters()] == ["omega"]


def test_weights_start_at_nothing_and_multiply_both_sides(kernel, pair) -> None:
    plain, weighted = Lfk(5, 2, 12, weighted=False), Lfk(5, 2, 12)
    torch.testing.assert_close(kernel(weighted, *pair), kernel(plain, *pair))
    with torch.no_grad():
        weighted.damping.fill_(0.2)
        weighted.tilt.fill_(0.3)
    x, y = pair
    side = [torch.exp(0.3 * one.square().sum(-1) + 0.3 * one.sum(-1)) for one in (x, y)]
    torch.testing.assert_close(kernel(weighted, x, y), side[0][:, None] * kernel(plain, x, y) * side[1])


def test_projection_scale_is_positive() -> None:
    with pytest.raises(kf.KernelformerError, match="projection_scale must be positive"):
        Lfk(5, 1, projection_scale=0.0)
