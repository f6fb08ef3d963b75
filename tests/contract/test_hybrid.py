"""Exact softmax near, the kernel far, one normaliser: every map against the quadratic definition."""

from __future__ import annotations

import copy

import pytest
import torch

import kernelformer as kf

LENGTH = 150
WINDOWS = [1, 7, 64, 100]
CUT = 97


def _hybrid(feature_map, window, dtype=torch.float64):
    attention = kf.KernelAttention(feature_map, causal=True, window=window).to(dtype)
    with torch.no_grad():
        attention.log_mix.copy_(torch.tensor([0.5, -1.0])[: feature_map.num_heads])
    return attention


def _definition(attention, q, k, v, key_mask=None):
    """The weights of both kinds written out."""
    feature_map, groups, length = attention.feature_map, q.shape[1] // k.shape[1], q.shape[2]
    places = torch.arange(length)
    phi_q, phi_k = feature_map.map_q(q, positions=places), feature_map.map_k(k, None, key_mask, places)

    def spread(x):
        return x.repeat_interleave(groups, dim=1)

    zeros = torch.zeros(1, 1, 1, dtype=q.dtype)
    log_q = zeros if phi_q.log_scale is None else phi_q.log_scale
    log_k = zeros if phi_k.log_scale is None else spread(phi_k.log_scale)
    mix = spread(attention.log_mix[None, :, None]).to(q.dtype)
    distance = places[:, None] - places
    visible = (distance >= 0) if key_mask is None else (distance >= 0) & key_mask[:, None, None]
    near, far = visible & (distance < attention.window), visible & (distance >= attention.window)
    root = q.shape[-1] ** -0.25
    scores = root * q @ spread(root * k - feature_map.key_shift[:, None].to(q.dtype)).mT
    logs = (log_q + mix)[..., None] + log_k[..., None, :] + torch.zeros_like(scores)
    scores, logs = scores.masked_fill(~near, -torch.inf), logs.masked_fill(~far, -torch.inf)
    top = torch.maximum(scores, logs).detach().amax(-1, keepdim=True)
    top = top.masked_fill(top.isinf(), 0.0)
    exact, mass = (scores - top).exp(), (logs - top).exp()
    weights = exact + (phi_q.values @ spread(phi_k.values).mT) * mass
    total, mass = weights.sum(-1), (exact + mass).sum(-1)
    bound = torch.maximum(total, feature_map.floor * mass)
    return (weights @ spread(v)) / torch.where(mass > 0, bound, 1.0)[..., None]


def _skip_gated(map_name):
    if kf.FEATURE_MAPS[map_name].is_gated:
        pytest.skip("a gated map has no window")


def _leaf(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_outputs_and_gradients(map_name, window, masked, build, draw, gradients):
    _skip_gated(map_name)
    attention = _hybrid(build(map_name), window)
    q, k, v = _leaf(*draw(LENGTH, groups=2, dtype=torch.float64))
    mask = torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(1)) > 0.4 if masked else None
    out, expected = attention(q, k, v, mask), _definition(attention, q, k, v, mask)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)
    found, wanted = (gradients(t, attention, q=q, k=k, v=v) for t in (out, expected))
    for name, gradient in wanted.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-7, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert wanted["log_mix"].abs().max() > 1e-6


@pytest.mark.parametrize("pieces", [(150,), (1,) * 5 + (145,), (70, 0, 1, 9, 70), (149, 1)], ids=str)
def test_split_and_resume(map_name, pieces, build, draw, gradients):
    _skip_gated(map_name)
    attention = _hybrid(build(map_name), 9)
    q, k, v = _leaf(*draw(LENGTH, groups=2, dtype=torch.float64))
    mask = torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(1)) > 0.2
    whole = attention(q, k, v, mask)
    state, outs, start = None, [], 0
    for size in pieces:
        rows = slice(start, start + size)
        out, state = attention.stream(q[:, :, rows], k[:, :, rows], v[:, :, rows], state, mask[:, rows])
        outs.append(out)
        start += size
    assert int(state.length) == LENGTH
    assert state.near_k.shape[2] == 9
    torch.testing.assert_close(torch.cat(outs, dim=2), whole, rtol=1e-10, atol=1e-12)
    found, wanted = (gradients(t, attention, q=q, k=k, v=v) for t in (torch.cat(outs, dim=2), whole))
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("factor", [0.0, 5.0, 1e6], ids=str)
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_no_bit_of_the_past_changes(map_name, which, factor, build, draw):
    _skip_gated(map_name)
    attention = _hybrid(build(map_name), 9, torch.float32)
    inputs = dict(zip("qkv", draw(LENGTH), strict=True))
    changed = dict(inputs)
    changed[which] = inputs[which].clone()
    changed[which][:, :, CUT:] *= factor
    one, other = (attention(**tensors)[:, :, :CUT] for tensors in (inputs, changed))
    assert torch.equal(one, other)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_scales_are_finite_and_bounded(map_name, scale, dtype, build, draw, gradients):
    _skip_gated(map_name)
    attention = _hybrid(build(map_name), 9, torch.float32)
    q, k, v = _leaf(*draw(70, scale=scale, dtype=dtype))
    out = attention(q, k, v)
    assert out.dtype == dtype
    bound = v.float().norm(dim=-1).max() / (attention.feature_map.floor or 1.0)
    assert out.float().norm(dim=-1).max() <= bound * 1.01
    for name, gradient in gradients(out, attention, q=q, k=k, v=v).items():
        assert gradient.isfinite().all(), name


@pytest.mark.parametrize("length", [1, 40, 64])
def test_a_window_that_holds_all_is_softmax(map_name, length, build, draw):
    _skip_gated(map_name)
    q, k, v = draw(length, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(_hybrid(build(map_name), 64)(q, k, v), expected, rtol=1e-9, atol=1e-10)


def test_blocks_are_computed_again_for_the_gradient(build, draw, gradients):
    """Beyond one block the gradients come from recomputation, and are the same."""
    attention = _hybrid(build("favor", num_features=2048), 20)
    q, k, v = _leaf(*draw(LENGTH, dtype=torch.float64))
    assert kf.engine.blockwise.block_length(k, attention.feature_map) < LENGTH
    found, wanted = (
        gradients(t, attention, q=q, k=k, v=v) for t in (attention(q, k, v), _definition(attention, q, k, v))
    )
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-7, atol=1e-8)


def test_softmax_kernel_has_no_border(draw):
    """Where the far kernel is nearly softmax's, the whole is nearly softmax attention, whatever the window."""
    q, k, v = draw(LENGTH, head_dim=2, scale=0.3, dtype=torch.float64)
    feature_map = kf.feature_maps.Favor(2, 2, 8192).double()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for window in (1, 30):
        out = kf.KernelAttention(feature_map, causal=True, window=window)(q, k, v)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-2)


@torch.no_grad()
def test_state_stays_as_it_was_and_modules_are_copied(build, draw):
    attention = _hybrid(build("hedgehog"), 9)
    q, k, v = draw(LENGTH, dtype=torch.float64)
    _, state = attention.stream(q, k, v)
    kept = copy.deepcopy(state)
    attention.stream(q[:, :, :1], k[:, :, :1], v[:, :, :1], state)
    for one, other in zip((*state.far, *state[1:]), (*kept.far, *kept[1:]), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(copy.deepcopy(attention)(q, k, v), attention(q, k, v))


def test_what_cannot_be_is_refused(build, draw):
    for window in (-1, True, 2.5):
        with pytest.raises(kf.KernelformerError, match="window must be"):
            kf.KernelAttention(build("elu"), causal=True, window=window)
    with pytest.raises(kf.KernelformerError, match="causal=True"):
        kf.KernelAttention(build("elu"), window=4)
    for feature_map in (build("rfa_gated"), kf.feature_maps.Softmax(8, 2)):
        with pytest.raises(kf.KernelformerError, match="window=0"):
            kf.KernelAttention(feature_map, causal=True, window=4)
    q, k, v = draw(12)
    _, plain = kf.KernelAttention(build("elu"), causal=True).stream(q, k, v)
    with pytest.raises(kf.ShapeError, match="another window"):
        kf.KernelAttention(build("elu"), causal=True, window=4).stream(q, k, v, plain)
