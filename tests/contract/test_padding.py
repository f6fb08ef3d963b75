"""Padding anywhere, with any content, changes neither outputs nor gradients of real tokens."""

from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf

CONTENTS = {"nan": math.nan, "inf": math.inf, "largest": 3e38, "ordinary": 2.0}


def _leaf(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


def _mask(layout, length):
    mask = torch.ones(2, length, dtype=torch.bool)
    if layout == "left":
        mask[0, : length // 3] = False
    elif layout == "right":
        mask[0, -length // 3 :] = False
    elif layout == "interior":
        mask[0, 1::3] = False
        mask[1, 2] = False
    return mask


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("layout", ["left", "right", "interior"])
def test_any_content(map_name, form, layout, content, build, draw, gradients):
    feature_map = build(map_name)
    attention = form.attention(feature_map)
    mask = _mask(layout, form.keys)
    own = form.queries == form.keys
    weight = torch.randn(2, 2, form.queries, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    if own:
        weight = weight * mask[:, None, :, None]
    outs, found = [], []
    for value in (0.0, CONTENTS[content]):
        q, k, v = draw(form.queries, form.keys)
        hidden = ~mask[:, None, :, None]
        q = q.masked_fill(hidden, value) if own else q
        q, k, v = _leaf(q, k.masked_fill(hidden, value), v.masked_fill(hidden, value))
        out = form.run(attention, q, k, v, mask)
        outs.append(out.masked_fill(hidden, 0.0) if own else out)
        # As a loss does: the rows of padding are left out, not multiplied by zero.
        found.append(gradients(outs[-1], feature_map, weight, q=q, k=k, v=v))
    torch.testing.assert_close(outs[1], outs[0], rtol=1e-6, atol=1e-6)
    for name, gradient in found[0].items():
        other = found[1][name]
        assert other.isfinite().all(), name
        torch.testing.assert_close(other, gradient, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
        if name in ("k", "v"):
            assert not other[hidden.expand_as(other)].any(), f"padding sends a gradient to {name}"


@pytest.mark.parametrize("layout", ["left", "right"])
@pytest.mark.parametrize("pads", [1, 3, 100])
def test_padding_equals_removal(map_name, self_form, layout, pads, build, draw, gradients):
    feature_map = build(map_name).double()
    q, k, v = _leaf(*draw(self_form.queries, dtype=torch.float64))
    alone = self_form.run(self_form.attention(feature_map), q, k, v)
    junk = draw(pads, dtype=torch.float64, number=99, scale=20.0)
    order = (lambda real, pad: (pad, real)) if layout == "left" else (lambda real, pad: (real, pad))
    padded = [torch.cat(order(real, pad), dim=2) for real, pad in zip((q, k, v), junk, strict=True)]
    mask = torch.cat(order(torch.ones(2, q.shape[2]).bool(), torch.zeros(2, pads).bool()), dim=1)
    rows = slice(pads, None) if layout == "left" else slice(q.shape[2])
    out = kf.KernelAttention(feature_map, self_form.causal)(*padded, mask)[:, :, rows]
    torch.testing.assert_close(out, alone, rtol=1e-9, atol=1e-10)
    found, expected = (gradients(t, feature_map, q=q, k=k, v=v) for t in (out, alone))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-8, atol=1e-9)


def test_rows_that_see_nothing_are_zero(map_name, form, build, draw, gradients):
    feature_map = build(map_name)
    q, k, v = _leaf(*draw(form.queries, form.keys))
    mask = torch.ones(2, form.keys, dtype=torch.bool)
    mask[0] = False
    out = form.run(form.attention(feature_map), q, k, v, mask)
    assert not out[0].any()
    alone = form.run(form.attention(feature_map), q[1:], k[1:], v[1:])
    torch.testing.assert_close(out[1:], alone, rtol=1e-5, atol=1e-6)
    for name, gradient in gradients(out, feature_map, q=q, k=k, v=v).items():
        assert gradient.isfinite().all(), name
        if name in ("q", "k", "v"):
            assert not gradient[0].any(), name


def test_only_empty_rows(map_name, form, build, draw, gradients):
    feature_map = build(map_name)
    q, k, v = _leaf(*draw(form.queries, form.keys))
    out = form.run(form.attention(feature_map), q, k, v, torch.zeros(2, form.keys, dtype=torch.bool))
    assert not out.any()
    for name, gradient in gradients(out, feature_map, q=q, k=k, v=v).items():
        assert not gradient.any(), name


def test_causal_rows_before_the_first_key_are_zero(map_name, causal_form, build, draw, gradients):
    feature_map = build(map_name)
    q, k, v = _leaf(*draw(causal_form.queries))
    mask = _mask("left", causal_form.keys)
    first = causal_form.keys // 3
    out = causal_form.run(causal_form.attention(feature_map), q, k, v, mask)
    assert not out[0, :, :first].any()
    found = gradients(out, feature_map, q=q, k=k, v=v)
    for name in "qkv":
        assert not found[name][0, :, :first].any(), name


def test_a_mask_of_ones_is_no_mask(map_name, form, build, draw):
    attention = form.attention(build(map_name))
    q, k, v = draw(form.queries, form.keys)
    mask = torch.ones(2, form.keys, dtype=torch.bool)
    torch.testing.assert_close(form.run(attention, q, k, v, mask), form.run(attention, q, k, v), rtol=1e-5, atol=1e-6)


def test_batch_of_one(map_name, form, build, draw):
    """The mask counts for a single sequence as it does within a batch."""
    attention = form.attention(build(map_name))
    q, k, v = draw(form.queries, form.keys)
    mask = _mask("left", form.keys)
    together = form.run(attention, q, k, v, mask)
    alone = form.run(attention, q[:1], k[:1], v[:1], mask[:1])
    torch.testing.assert_close(alone, together[:1], rtol=1e-5, atol=1e-6)
