"""Positive maps at magnitudes where exponentials leave float32, and the bound of signed maps."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf


def _mean(v, causal):
    return v.cumsum(2) / torch.arange(1, v.shape[2] + 1)[:, None] if causal else v.mean(2, keepdim=True)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_positive_maps_at_eight_deviations(positive_name, causal, build, draw, reference):
    """N(0, 8²), head_dim 64, float32: neither NaN nor the mean of V; rows that underflow are zero, few and counted."""
    feature_map = build(positive_name, head_dim=64, num_features=64, moved=False)
    attention = kf.KernelAttention(feature_map, causal)
    q, k, v = draw(256, batch=1, head_dim=64, scale=8.0)
    with torch.no_grad():
        out = attention(q, k, v).double()
        expected = reference(feature_map, q, k, v, causal=causal).out
    assert out.isfinite().all()
    lost = ~out.any(-1)
    assert attention.floored_share == pytest.approx(lost.double().mean().item())
    assert attention.floored_share < 0.01
    error = (out - expected).norm(dim=-1)
    spread = (expected - _mean(v, causal)).norm(dim=-1)
    assert (error <= 1e-3 * spread + 1e-4)[~lost].all()


def test_more_features_do_not_underflow_more(build, draw):
    for num_features in (1, 4096):
        attention = kf.KernelAttention(build("favor", head_dim=64, num_features=num_features, moved=False))
        q, k, v = draw(64, batch=1, head_dim=64, scale=4.0)
        assert attention(q, k, v).isfinite().all()
        assert attention.floored_share < 0.02


def test_underflowed_rows_send_no_gradient(build, draw):
    """Above the smallest float32, 1 / den is finite, but its products are not."""
    attention = kf.KernelAttention(build("favor", moved=False))
    q, k, v = (t.requires_grad_() for t in draw(40, scale=30.0))
    out = attention(q, k, v)
    out.square().sum().backward()
    lost = ~out.detach().any(-1)
    assert attention.floored_share == pytest.approx(lost.double().mean().item())
    assert 0 < attention.floored_share < 1
    assert not q.grad[lost].any()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("floor", [0.002, 0.05, 1.0])
def test_signed_maps_are_bounded(signed_name, form, scale, floor, build, draw, gradients):
    feature_map = build(signed_name)
    feature_map.floor = floor
    attention = form.attention(feature_map)
    q, k, v = (t.requires_grad_() for t in draw(form.queries, form.keys, scale=scale))
    out = form.run(attention, q, k, v)
    assert out.norm(dim=-1).max() <= v.norm(dim=-1).max() / floor * (1 + 1e-4)
    assert all(g.isfinite().all() for g in gradients(out, feature_map, q=q, k=k, v=v).values())


def test_the_share_of_floored_rows(map_name, form, build, draw, reference):
    feature_map = build(map_name)
    attention = form.attention(feature_map)
    assert attention.floored_share == 0.0
    q, k, v = draw(form.queries, form.keys)
    mask = torch.ones(2, form.keys, dtype=torch.bool)
    mask[0, 1::3] = False
    form.run(attention, q, k, v, mask)
    floored = reference(feature_map, q, k, v, mask, causal=form.causal).floored
    rows = mask if form.queries == form.keys else torch.ones(2, form.queries, dtype=torch.bool)
    seen = rows[:, None].expand_as(floored)
    assert attention.floored_share == pytest.approx(floored[seen].double().mean().item())
    attention.reset_floored()
    assert attention.floored_share == 0.0


def test_the_floor_of_signed_maps_is_met_or_not(signed_name, form, build, draw):
    """Never where all tokens are equal, as the kernel is then at its largest; often below a floor of 1 elsewhere."""
    feature_map = build(signed_name, moved=False)
    attention = form.attention(feature_map)
    q, k, v = draw(form.queries, form.keys, scale=1e-3)
    form.run(attention, q[:, :, :1].expand_as(q), q[:, :, :1].expand_as(k), v)
    assert attention.floored_share == 0.0
    feature_map.floor = 1.0
    form.run(attention, *draw(form.queries, form.keys))
    assert attention.floored_share > 0.4
