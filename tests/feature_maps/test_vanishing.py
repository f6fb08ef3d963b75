"""A query whose ReLU-like features all vanish gets the mean of the visible values."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Cosformer, Dpfp, Polaformer, Relu

MAPS = {"relu": Relu, "cosformer": Cosformer, "dpfp": Dpfp, "polaformer": Polaformer}


def vanishing_query(name: str) -> torch.Tensor:
    if name == "dpfp":  # one coordinate alone has no product with a neighbour
        return torch.tensor([2.0, 0.0, 0.0, 0.0])
    return torch.zeros(4) if name == "polaformer" else -torch.ones(4)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_mean_of_visible_values(name: str, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    k, v = (torch.randn(2, 3, 6, 4, generator=generator) for _ in range(2))
    q = vanishing_query(name).expand(2, 3, 6, 4)
    mask = torch.tensor([[True] * 6, [True, False, True, True, False, False]])
    for causal in (False, True):
        attention = kf.KernelAttention(MAPS[name](4, 3), causal=causal)
        mean = kf.KernelAttention(kf.feature_maps.Constant(4, 3), causal=causal)
        torch.testing.assert_close(attention(q, scale * k, v, mask), mean(q, k, v, mask))


@pytest.mark.parametrize("name", MAPS)
def test_other_queries_are_unchanged_by_the_extra_feature(name: str) -> None:
    feature_map = MAPS[name](4, 1)
    q = torch.tensor([1.0, 2.0, -1.0, 3.0])[None, None, None]
    assert feature_map.map_q(q).values[..., -1].item() < 1e-20
    values, log_scale, _ = feature_map.map_k(30 * q)
    assert (values[..., -1] * log_scale.exp()).item() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("name", ["relu", "cosformer", "dpfp"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_shares_nothing_with_any_key_gets_the_mean(name: str, causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, v = (torch.rand(2, 3, 6, 4, generator=generator) for _ in range(2))
    k = (-30.0 * torch.rand(2, 3, 6, 4, generator=generator)).requires_grad_()
    attention = kf.KernelAttention(MAPS[name](4, 3), causal=causal)
    out = attention(q, k, v)
    torch.testing.assert_close(out, kf.KernelAttention(kf.feature_maps.Constant(4, 3), causal=causal)(q, k, v))
    (gradient,) = torch.autograd.grad(out.square().sum(), k)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", MAPS)
def test_log_scale_of_vanishing_queries_is_zero(name: str) -> None:
    assert MAPS[name](4, 1).map_q(vanishing_query(name)[None, None, None]).log_scale.item() == 0.0


@pytest.mark.parametrize("name", MAPS)
def test_key_features_stay_in_range_however_small_the_key(name: str) -> None:
    values, log_scale, _ = MAPS[name](4, 1).map_k(torch.full((1, 1, 1, 4), 1e-3))
    assert values.max() <= 1
    assert values[..., -1].item() == 1.0
    assert log_scale.item() == 0.0


@pytest.mark.parametrize("name", MAPS)
def test_any_other_width_is_refused(name: str) -> None:
    with pytest.raises(kf.KernelformerError, match="leave it out"):
        MAPS[name](4, 1, 7)
