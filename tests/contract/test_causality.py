"""A later token changes no bit of an earlier output, and a sequence may be cut anywhere."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf

CUT = 37


def _leaf(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


def _early(tensor):
    return tensor[:, :, :CUT]


@pytest.mark.parametrize("factor", [0.0, 5.0, -1e3, 1e6, 1e18], ids=str)
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_no_bit_of_the_past_changes(map_name, causal_form, which, factor, build, draw, gradients):
    feature_map = build(map_name)
    attention = causal_form.attention(feature_map)
    inputs = dict(zip("qkv", draw(causal_form.queries), strict=True))
    changed = dict(inputs)
    changed[which] = inputs[which].clone()
    changed[which][:, :, CUT:] *= factor
    outs, found = [], []
    for tensors in (inputs, changed):
        q, k, v = _leaf(*tensors.values())
        early = _early(causal_form.run(attention, q, k, v))
        outs.append(early)
        found.append(gradients(early, feature_map, q=q, k=k, v=v))
    assert torch.equal(*outs)
    for name in "qkv":
        assert torch.equal(_early(found[0][name]), _early(found[1][name])), name
        assert not found[1][name][:, :, CUT:].any(), f"the past sends a gradient to later {name}"


@pytest.mark.parametrize("factor", [0.1, 30.0, 1e6], ids=str)
@pytest.mark.parametrize("cut", [1, 64, 257, 599])
def test_no_bit_of_the_past_changes_in_long_sequences(map_name, cut, factor, build, draw, gradients):
    """Beyond one chunk, where a scale chosen for many rows at once would show."""
    feature_map = build(map_name)
    attention = kf.KernelAttention(feature_map, causal=True)
    outs, found = [], []
    for times in (1.0, factor):
        q, k, v = draw(600, batch=1)
        k[:, :, cut:] *= times
        q, k, v = _leaf(q, k, v)
        early = attention(q, k, v)[:, :, :cut]
        outs.append(early)
        found.append(gradients(early, feature_map, q=q, k=k, v=v))
    assert torch.equal(*outs)
    for name in "qkv":
        assert torch.equal(found[0][name][:, :, :cut], found[1][name][:, :, :cut]), name
        assert not found[1][name][:, :, cut:].any(), f"the past sends a gradient to later {name}"


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 100])
def test_a_prefix_alone(map_name, length, build, draw):
    attention = kf.KernelAttention(build(map_name).double(), causal=True)
    q, k, v = draw(130, batch=1, dtype=torch.float64)
    whole = attention(q, k, v)[:, :, :length]
    alone = attention(q[:, :, :length], k[:, :, :length], v[:, :, :length])
    torch.testing.assert_close(alone, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "pieces",
    [(130,), (0, 130, 0), (1,) * 7 + (123,), (64, 66), (63, 1, 1, 65), (129, 1), (3, 0, 61, 5, 61)],
    ids=lambda pieces: "+".join(map(str, pieces)) if len(pieces) < 8 else "steps",
)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_split_and_resume(map_name, pieces, masked, build, draw, gradients):
    feature_map = build(map_name).double()
    attention = kf.KernelAttention(feature_map, causal=True)
    q, k, v = _leaf(*draw(130, batch=2, dtype=torch.float64, groups=2))
    mask = torch.rand(2, 130, generator=torch.Generator().manual_seed(1)) > 0.4 if masked else None
    whole = attention(q, k, v, mask)
    outs, state, start = [], None, 0
    for size in pieces:
        rows = slice(start, start + size)
        piece = None if mask is None else mask[:, rows]
        out, state = attention.stream(q[:, :, rows], k[:, :, rows], v[:, :, rows], state, piece)
        assert out.shape == (2, 4, size, v.shape[-1])
        outs.append(out)
        start += size
    assert int(state.length) == 130
    out = torch.cat(outs, dim=2)
    torch.testing.assert_close(out, whole, rtol=1e-10, atol=1e-12)
    found, expected = (gradients(t, feature_map, q=q, k=k, v=v) for t in (out, whole))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_steps_equal_one_pass_in_low_precision(map_name, dtype, build, draw):
    attention = kf.KernelAttention(build(map_name), causal=True)
    q, k, v = draw(70, batch=1, dtype=dtype, scale=0.5)
    state, outs = None, []
    for row in range(70):
        out, state = attention.stream(*(t[:, :, row : row + 1] for t in (q, k, v)), state)
        outs.append(out)
    assert state.kv.dtype == state.k_sum.dtype == state.mass.dtype == torch.float32
    tolerance = max(2 * torch.finfo(dtype).eps, 1e-3)
    torch.testing.assert_close(torch.cat(outs, dim=2), attention(q, k, v), rtol=tolerance, atol=tolerance)


def test_the_state_given_is_not_changed(map_name, build, draw):
    attention = kf.KernelAttention(build(map_name), causal=True)
    q, k, v = draw(20)
    _, state = attention.stream(q, k, v)
    kept = [t.clone() for t in state]
    for length in (1, 20):
        attention.stream(q[:, :, :length], k[:, :, :length], v[:, :, :length], state)
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))
    again = kf.State(*(t.clone() for t in kept))
    assert torch.equal(attention.stream(q, k, v, again)[0], attention.stream(q, k, v, state)[0])


def test_sums_count_over_100_000_steps(map_name, build, draw):
    """In bfloat16 a sum of ones stops at 256, in float16 at 2,048."""
    length, dim = 100_000, 2
    feature_map = build(map_name, head_dim=dim, num_heads=1, num_features=4)
    if feature_map.phi_at.__func__ is not kf.FeatureMap.phi_at or feature_map.is_gated:
        return
    attention = kf.KernelAttention(feature_map, causal=True)
    q, k, v = draw(1, batch=1, heads=1, head_dim=dim, value_dim=1, dtype=torch.bfloat16, scale=0.1)
    with torch.no_grad():
        _, state = attention.stream(*(t.expand(-1, -1, length, -1) for t in (q, k, v)))
        for _ in range(8):
            _, state = attention.stream(q, k, v, state)
        values = feature_map.map_k(k).values
    assert int(state.length) == length + 8
    torch.testing.assert_close(state.mass, torch.full_like(state.mass, length + 8), rtol=1e-5, atol=0)
    torch.testing.assert_close(state.k_sum, (length + 8) * values[:, :, 0], rtol=1e-3, atol=1e-3)
    late, later = (attention.stream(q, k, v, state)[1].mass for _ in range(2))
    assert torch.equal(late, later)
    torch.testing.assert_close(late - state.mass, torch.ones_like(late), rtol=0.05, atol=0)


def test_large_keys_do_not_erase_the_present(positive_name, build, draw, reference):
    """A scale per chunk or per sequence would underflow the rows before a large key."""
    feature_map = build(positive_name)
    q, k, v = draw(40)
    k[:, :, 30:] *= 40.0
    out = kf.KernelAttention(feature_map, causal=True)(q, k, v)
    expected = reference(feature_map, q, k, v, causal=True).out
    torch.testing.assert_close(out[:, :, :30].double(), expected[:, :, :30], rtol=1e-3, atol=1e-3)
