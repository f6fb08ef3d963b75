"""Every form of attention equals the quadratic definition, in outputs and in gradients."""

from __future__ import annotations

import copy

import pytest
import torch

import kernelformer as kf

HALVES = [torch.float16, torch.bfloat16]


def _leaf(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


def _compare(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("groups", [1, 3], ids=["own", "grouped"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_outputs_and_gradients(map_name, form, groups, masked, build, draw, reference, gradients):
    feature_map = build(map_name).double()
    q, k, v = _leaf(*draw(form.queries, form.keys, groups=groups, dtype=torch.float64))
    mask = torch.rand(2, form.keys, generator=torch.Generator().manual_seed(1)) > 0.4 if masked else None
    out = form.run(form.attention(feature_map), q, k, v, mask)
    expected = reference(feature_map, q, k, v, mask, causal=form.causal).out
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)
    found = gradients(out, feature_map, q=q, k=k, v=v)
    _compare(found, gradients(expected, feature_map, q=q, k=k, v=v))
    assert found["v"].abs().max() > 0


def test_one_map_for_every_query_head(map_name, form, build, draw, reference, gradients):
    feature_map = build(map_name, num_heads=6).double()
    q, k, v = _leaf(*draw(form.queries, form.keys, groups=3, dtype=torch.float64))
    out = form.run(form.attention(feature_map), q, k, v)
    repeated = [t.repeat_interleave(3, dim=1) for t in (k, v)]
    expected = reference(feature_map, q, *repeated, causal=form.causal).out
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)
    _compare(gradients(out, feature_map, q=q, k=k, v=v), gradients(expected, feature_map, q=q, k=k, v=v))


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("growth", [0.0, 0.02], ids=["even", "growing"])
def test_long_sequences(map_name, causal, growth, build, draw, reference, gradients):
    """Many chunks and blocks, padding among them; growing keys move the running maximum hundreds of times."""
    feature_map = build(map_name).double()
    length = 700
    q, k, v = draw(length, batch=1, dtype=torch.float64)
    k = k * (1.0 + growth * torch.arange(length, dtype=torch.float64))[:, None]
    q, k, v = _leaf(q, k, v)
    mask = torch.rand(1, length, generator=torch.Generator().manual_seed(1)) > 0.2
    out = kf.KernelAttention(feature_map, causal)(q, k, v, mask)
    expected = reference(feature_map, q, k, v, mask, causal=causal).out
    torch.testing.assert_close(out, expected, rtol=1e-8, atol=1e-9)
    found = gradients(out, feature_map, q=q, k=k, v=v)
    for name, gradient in gradients(expected, feature_map, q=q, k=k, v=v).items():
        scale = max(float(gradient.abs().max()), 1.0)
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-6, atol=1e-9 * scale, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_lengths(map_name, length, causal, build, draw, reference):
    feature_map = build(map_name)
    q, k, v = draw(length, batch=1, scale=0.5)
    out = kf.KernelAttention(feature_map, causal)(q, k, v)
    expected = reference(feature_map, q, k, v, causal=causal).out
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.bidirectional
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (1, 90), (90, 1)])
def test_unequal_lengths(map_name, queries, keys, build, draw, reference):
    feature_map = build(map_name)
    q, k, v = draw(queries, keys, scale=0.5)
    out = kf.KernelAttention(feature_map)(q, k, v)
    torch.testing.assert_close(out.double(), reference(feature_map, q, k, v).out, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("head_dim", [1, 8, 60, 192])
@pytest.mark.parametrize("num_features", [2, 7, 34])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_widths(map_name, head_dim, num_features, causal, build, draw, reference):
    try:
        feature_map = build(map_name, head_dim, num_features=num_features)
    except kf.KernelformerError:
        assert num_features % 2, "only an odd width may be refused"
        with pytest.raises(kf.KernelformerError, match="even"):
            build(map_name, head_dim, num_features=num_features)
        return
    if feature_map.num_features != num_features != 34:
        pytest.skip("the width of this map follows from head_dim: once is enough")
    q, k, v = draw(9, head_dim=head_dim, value_dim=3, scale=0.5)
    out = kf.KernelAttention(feature_map, causal)(q, k, v)
    expected = reference(feature_map, q, k, v, causal=causal).out
    torch.testing.assert_close(out.double(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64], ids=str)
def test_dtypes(map_name, form, dtype, build, draw, reference):
    feature_map = build(map_name)
    q, k, v = draw(form.queries, form.keys, dtype=dtype, scale=0.5)
    out = form.run(form.attention(feature_map), q, k, v)
    assert out.dtype == dtype
    expected = reference(feature_map, q, k, v, causal=form.causal).out
    # One rounding of the result, as the sums are float32; float32 parameters bound float64.
    tolerance = max(2 * torch.finfo(dtype).eps, 1e-3 if dtype != torch.float64 else 1e-9)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_bfloat16_of_long_sequences(map_name, causal, build, draw):
    """Matrix products may be in bfloat16, sums are not: the error does not grow with the length."""
    feature_map = build(map_name)
    attention = kf.KernelAttention(feature_map, causal or feature_map.is_gated, below_crossover="ignore")
    q, k, v = draw(3000, batch=1, dtype=torch.bfloat16, scale=0.5)
    with torch.no_grad():
        expected = attention(q.float(), k.float(), v.float())
        found = attention(q, k, v).float()
    assert (found - expected).norm() <= 1e-2 * expected.norm()


@pytest.mark.parametrize("lower", HALVES, ids=str)
def test_half_precision_parameters(map_name, form, lower, build, draw, reference):
    feature_map = build(map_name).to(lower)
    q, k, v = draw(form.queries, form.keys, dtype=lower, scale=0.5)
    out = form.run(form.attention(feature_map), q, k, v)
    expected = reference(feature_map, q, k, v, causal=form.causal).out
    tolerance = max(2 * torch.finfo(lower).eps, 1e-3)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lower", HALVES, ids=str)
def test_autocast_changes_nothing(map_name, form, lower, build, draw):
    q, k, v = draw(form.queries, form.keys)
    attention = form.attention(build(map_name))
    plain = form.run(attention, q, k, v)
    with torch.autocast("cpu", lower):
        assert torch.equal(form.run(attention, q, k, v), plain)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 8.0, 30.0])
def test_scales_are_finite_and_bounded(map_name, form, scale, build, draw, gradients):
    feature_map = build(map_name)
    q, k, v = _leaf(*draw(form.queries, form.keys, scale=scale))
    out = form.run(form.attention(feature_map), q, k, v)
    bound = v.norm(dim=-1).max() / (feature_map.floor or 1.0)
    assert out.norm(dim=-1).max() <= bound * (1 + 1e-3)
    for name, gradient in gradients(out, feature_map, q=q, k=k, v=v).items():
        assert gradient.isfinite().all(), name


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_large_half_precision_inputs(map_name, form, dtype, build, draw):
    q, k, v = draw(form.queries, form.keys, dtype=dtype, scale=30.0)
    assert form.run(form.attention(build(map_name)), q, k, v).isfinite().all()


def test_scale_argument(map_name, self_form, build, draw):
    feature_map = build(map_name).double()
    attention = self_form.attention(feature_map)
    q, k, v = draw(self_form.queries, dtype=torch.float64)
    default = attention(q, k, v)
    assert torch.equal(default, attention(q, k, v, scale=q.shape[-1] ** -0.5))
    factor = (0.09 * q.shape[-1] ** 0.5) ** 0.5
    torch.testing.assert_close(attention(q, k, v, scale=0.09), attention(factor * q, factor * k, v))


@pytest.mark.bidirectional
def test_order_of_keys_is_free(map_name, build, draw):
    if build(map_name).phi_at.__func__ is not kf.FeatureMap.phi_at:
        return
    attention = kf.KernelAttention(build(map_name).double())
    q, k, v = draw(11, 23, dtype=torch.float64)
    order = torch.randperm(23, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(attention(q, k, v), attention(q, k[:, :, order], v[:, :, order]))


def _meets_some_key(feature_map, q, k, v, causal, reference):
    """Rows whose features share no support with any key's, as ReLU's may: zero, and counted as floored."""
    return ~reference(feature_map, q, k, v, causal=causal).floored


def test_equal_keys_give_the_mean(positive_name, self_form, build, draw, reference):
    feature_map = build(positive_name)
    if feature_map.phi_at.__func__ is not kf.FeatureMap.phi_at:
        return
    q, k, v = draw(self_form.queries)
    k = k[:, :, :1].expand_as(k)
    rows = _meets_some_key(feature_map, q, k, v, self_form.causal, reference)
    out = self_form.run(self_form.attention(feature_map), q, k, v)
    seen = v.cumsum(2) / torch.arange(1, v.shape[2] + 1)[:, None] if self_form.causal else v.mean(2, keepdim=True)
    torch.testing.assert_close(out[rows], seen.expand_as(out)[rows], rtol=1e-4, atol=1e-5)
    assert rows.double().mean() > 0.5
    assert not out[~rows].any()


def test_equal_values_come_back(positive_name, form, build, draw, reference):
    feature_map = build(positive_name)
    q, k, v = draw(form.queries, form.keys)
    v = v[:, :, :1].expand_as(v)
    rows = _meets_some_key(feature_map, q, k, v, form.causal, reference)
    out = form.run(form.attention(feature_map), q, k, v)
    torch.testing.assert_close(out[rows], v[:, :, :1].expand_as(out)[rows], rtol=1e-5, atol=1e-6)
    assert rows.double().mean() > 0.9


@pytest.mark.parametrize("kind", ["duplicate", "rank-one", "zero"])
def test_degenerate_keys(map_name, form, kind, build, draw, reference, gradients):
    feature_map = build(map_name).double()
    q, k, v = draw(form.queries, form.keys, dtype=torch.float64)
    if kind == "duplicate":
        k = k[:, :, torch.arange(form.keys) % 3]
    elif kind == "rank-one":
        k = k[..., :1] * k[:, :, :1]
    else:
        k = torch.zeros_like(k)
    q, k, v = _leaf(q, k, v)
    out = form.run(form.attention(feature_map), q, k, v)
    expected = reference(feature_map, q, k, v, causal=form.causal).out
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)
    for name, gradient in gradients(out, feature_map, q=q, k=k, v=v).items():
        assert gradient.isfinite().all(), name


def test_layout_in_memory_is_free(map_name, form, build, draw):
    attention = form.attention(build(map_name))
    q, k, v = draw(form.queries, form.keys)
    strided = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    torch.testing.assert_close(form.run(attention, *strided), form.run(attention, q, k, v), rtol=1e-5, atol=1e-5)


def test_deep_copy_of_the_module(map_name, form, build, draw):
    attention = form.attention(build(map_name))
    q, k, v = draw(form.queries, form.keys)
    assert torch.equal(form.run(copy.deepcopy(attention), q, k, v), form.run(attention, q, k, v))
