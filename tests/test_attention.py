"""What KernelAttention refuses, and the promises that no single law covers."""

from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf


@pytest.fixture
def attention():
    return kf.KernelAttention(kf.feature_maps.Elu(4, 2))


@pytest.fixture
def causal():
    return kf.KernelAttention(kf.feature_maps.Elu(4, 2), causal=True)


def x(batch=1, heads=2, length=3, dim=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(batch + heads + length + dim)
    return torch.randn(batch, heads, length, dim, generator=generator).to(dtype)


BAD = {
    r"q, k and v must be \[B, H, N, D\], got q \[3, 4\]": (torch.zeros(3, 4), x(), x()),
    r"must be \[B, H, N, D\], got .*v \[1, 2, 3, 4, 1\]": (x(), x(), x()[..., None]),
    r"need one batch size, .* got q \[2, 2, 3, 4\], k \[1, 2, 3, 4\]": (x(batch=2), x(), x()),
    r"k and v the same heads and length, got .* v \[1, 2, 5, 4\]": (x(), x(), x(length=5)),
    r"k and v the same heads and length, got .* v \[1, 1, 3, 4\]": (x(), x(), x(heads=1)),
    r"need one dtype, got torch.float16, torch.float32": (x(dtype=torch.float16), x(), x()),
    r"the heads of q must be a multiple of the heads of k, got q \[1, 3,": (x(heads=3), x(), x()),
    r"the feature map has 2 heads, got q \[1, 8, .*k \[1, 4,": (x(heads=8), x(heads=4), x(heads=4)),
    r"q must be \[B, H, N, 4\], got \[1, 2, 3, 5\]": (x(dim=5), x(), x()),
    r"k must be \[B, H, N, 4\], got \[1, 2, 3, 5\]": (x(), x(dim=5), x()),
    r"[qk] must be floating point, got torch.int64": tuple(x(dtype=torch.int64) for _ in range(3)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_shapes(attention, causal, message):
    for one in (attention, causal):
        with pytest.raises(kf.ShapeError, match=message):
            one(*BAD[message])
    with pytest.raises(kf.ShapeError, match=message):
        causal.stream(*BAD[message])


MASKS = [torch.ones(1, 3), torch.ones(1, 4).bool(), torch.ones(2, 3).bool(), torch.ones(3).bool()]


@pytest.mark.parametrize("mask", MASKS)
def test_bad_masks(attention, causal, mask):
    message = r"key_mask must be bool \[B, S\] = \[1, 3\], True = visible, got"
    for one in (attention, causal, causal.stream):
        with pytest.raises(kf.ShapeError, match=message):
            one(x(), x(), x(), key_mask=mask)


def test_causal_lengths(causal):
    for one in (causal, causal.stream):
        with pytest.raises(kf.ShapeError, match="causal attention needs queries and keys of one length"):
            one(x(length=2), x(), x())


@pytest.mark.parametrize("scale", [0.0, -0.5, math.nan])
def test_bad_scales(attention, causal, scale):
    for one in (attention, causal, causal.stream):
        with pytest.raises(kf.ShapeError, match="scale must be positive"):
            one(x(), x(), x(), scale=scale)


def test_stream_needs_causal_attention(attention):
    with pytest.raises(kf.KernelformerError, match=r"build KernelAttention\(..., causal=True\)"):
        attention.stream(x(), x(), x())


def test_a_state_of_another_shape(causal):
    _, state = causal.stream(x(), x(), x())
    for q, v in ((x(batch=2), x(batch=2)), (x(), x(dim=5))):
        with pytest.raises(kf.ShapeError, match=r"the state is of shape \[1, 2, 4, 4\], this input needs"):
            causal.stream(q, q, v, state)


def test_an_error_leaves_no_count(attention):
    with pytest.raises(kf.ShapeError):
        attention(x(), x(), x(length=5))
    assert attention.floored_share == 0.0


def test_the_state_is_as_it_says(causal):
    for dtype, kept in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64,) * 2):
        q = x(dtype=dtype)
        out, state = causal.stream(q, q, x(dim=5, dtype=dtype))
        assert out.shape == (1, 2, 3, 5)
        assert out.dtype == dtype
        assert state.kv.shape == (1, 2, 4, 5)
        assert state.k_sum.shape == (1, 2, 4)
        assert state.mass.shape == state.log_max.shape == (1, 2)
        assert {t.dtype for t in state[:4]} == {kept}
        assert int(state.length) == 3


def test_second_derivatives(attention, causal):
    q, k, v = (x(dtype=torch.float64).requires_grad_() for _ in range(3))
    for one in (attention, causal):
        assert torch.autograd.gradgradcheck(one, (q, k, v), atol=1e-4)


def test_inputs_are_not_changed(attention, causal):
    q, k, v = x(), x(length=3), x()
    kept = [t.clone() for t in (q, k, v)]
    for one in (attention, causal):
        one(q, k, v, key_mask=torch.tensor([[True, False, True]]))
    assert all(torch.equal(a, b) for a, b in zip((q, k, v), kept, strict=True))


def test_counts_outlive_no_reset_and_follow_the_rows():
    feature_map = kf.feature_maps.FlexformerS(4, 2, 8, floor=1.0)
    attention = kf.KernelAttention(feature_map)
    attention(x(), x(length=5), x(length=5))
    assert attention.floored_share > 0.9
    same = x()[:, :, :1].expand(-1, -1, 30, -1)
    attention(same * 0, same * 0, same)
    assert 0 < attention.floored_share < 0.2
    attention.reset_floored()
    assert attention.floored_share == 0.0
    assert all(name.startswith("feature_map.") for name in attention.state_dict())
