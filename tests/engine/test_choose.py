"""The form is chosen by shape and gradients, named with a reason, and slowness is said once."""

from __future__ import annotations

import warnings

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import choose
from kernelformer.engine.crossover import crossover_length, is_quadratic_faster
from kernelformer.engine.fused import why_no_form
from kernelformer.feature_maps import Hedgehog


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch):
    monkeypatch.setattr(choose, "_said", set())


def _inputs(length, dim=4):
    return [torch.randn(1, 2, length, dim, generator=torch.Generator().manual_seed(i)) for i in range(3)]


@pytest.fixture
def feature_map():
    return Hedgehog(4, 2, 8)


@pytest.mark.parametrize(
    ("length", "causal", "grad", "backend"),
    [
        (1, True, True, "step"),
        (3, False, False, "quadratic"),
        (2_000, False, True, "whole"),
        (20_000, False, True, "recompute"),
        (20_000, True, True, "recompute"),
        (500, True, False, "blocks"),
        (2_000, False, False, "blocks"),
        (0, True, False, "whole"),
    ],
)
def test_explain(feature_map, length, causal, grad, backend):
    q, k, v = _inputs(length)
    with torch.set_grad_enabled(grad):
        choice = kf.engine.explain(q, k, v, feature_map, causal=causal)
    assert choice.backend == backend
    assert len(choice.reason) > 20
    assert choice.chunk_size >= (backend in ("blocks", "recompute"))


def test_frozen_maps_and_inputs_need_no_recomputation(feature_map):
    inputs = _inputs(20_000)
    assert kf.engine.explain(*inputs, feature_map.requires_grad_(False)).backend == "blocks"
    assert kf.engine.explain(inputs[0].requires_grad_(), *inputs[1:], feature_map).backend == "recompute"


@pytest.mark.parametrize("causal", [False, True])
def test_said_once(feature_map, causal):
    attention = kf.KernelAttention(feature_map, causal)
    with pytest.warns(UserWarning, match=r"below a length of about \d+ on this device, got 9"):
        attention(*_inputs(9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention(*_inputs(8))
        if causal:
            attention.stream(*_inputs(8))


def test_long_or_told_not_to(feature_map):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kf.KernelAttention(feature_map)(*_inputs(1000))
        for silent in ("exact-kernel", "ignore"):
            kf.KernelAttention(feature_map, below_crossover=silent)(*_inputs(9))


def test_quadratic_form_where_it_is_faster(feature_map, monkeypatch):
    inputs = _inputs(3)
    linear = kf.KernelAttention(feature_map, below_crossover="ignore")(*inputs)
    quadratic = kf.KernelAttention(feature_map, below_crossover="exact-kernel")(*inputs)
    torch.testing.assert_close(quadratic, linear)

    def refuse(*_, **__):
        raise AssertionError("the quadratic form ran")

    monkeypatch.setattr(choose, "attend_quadratic", refuse)
    kf.KernelAttention(feature_map, below_crossover="ignore")(*inputs)
    with pytest.raises(AssertionError, match="quadratic"):
        kf.KernelAttention(feature_map, below_crossover="exact-kernel")(*inputs)


def test_unknown_behaviour(feature_map):
    with pytest.raises(kf.KernelformerError, match="warn, exact-kernel, ignore"):
        kf.KernelAttention(feature_map, below_crossover="silent")


def test_triton_is_refused_with_the_reason(feature_map):
    with pytest.raises(kf.KernelformerError, match=r"asked for, but the tensors are on cpu, not on a CUDA device"):
        kf.engine.explain(*_inputs(2_000), feature_map, backend="triton")
    attention = kf.KernelAttention(feature_map, below_crossover="ignore", backend="triton")
    with pytest.raises(kf.KernelformerError, match="CUDA"):
        attention(*_inputs(2_000))
    with pytest.raises(kf.KernelformerError, match="auto, torch, triton"):
        kf.KernelAttention(feature_map, backend="cuda")


def test_a_backend_asked_for_by_name_refuses_what_only_torch_computes(feature_map, monkeypatch):
    """One that is added, too: a window, and slices of bidirectional attention."""
    monkeypatch.setattr("kernelformer.attention.BACKENDS", (*choose.BACKENDS, "added"))
    for backend in (*choose.BACKENDS[2:], "added"):
        with pytest.raises(kf.KernelformerError, match=f'backend="{backend}" does not compute window=4'):
            kf.KernelAttention(feature_map, causal=True, window=4, backend=backend)
        with pytest.raises(kf.KernelformerError, match=f'backend="{backend}" does not split bidirectional'):
            kf.KernelAttention(feature_map, backend=backend).split_over(object())


def test_triton_is_chosen_where_it_fits(feature_map, monkeypatch):
    monkeypatch.setattr(choose, "why_not_fused", lambda *_: None)
    choice = kf.engine.explain(*_inputs(2_000), feature_map)
    assert choice.backend == "triton"
    assert "no N × M tensor" in choice.reason
    assert kf.engine.explain(*_inputs(2_000), feature_map, backend="torch").backend == "whole"
    assert kf.engine.explain(*_inputs(1), feature_map, causal=True).backend == "step"
    assert kf.engine.explain(*_inputs(3), feature_map).backend == "quadratic"


@pytest.mark.parametrize(
    ("build", "dtype", "value_dim", "reason"),
    [
        (lambda: Hedgehog(64, 2, 128), torch.bfloat16, 64, None),
        (lambda: kf.feature_maps.Elu(128, 2), torch.bfloat16, 128, None),
        (lambda: kf.feature_maps.Elu(128, 2), torch.float32, 128, "128 features on heads of width 128 don't fit"),
        (lambda: Hedgehog(64, 2, 256), torch.bfloat16, 64, None),
        (lambda: Hedgehog(64, 2, 128), torch.float64, 64, "not one of float32"),
        (lambda: kf.feature_maps.FlexformerN(64, 2, 128), torch.float32, 64, "FlexformerN has no form"),
        (lambda: Hedgehog(64, 2, 512), torch.float32, 64, "512 features"),
        (lambda: Hedgehog(64, 2, 128), torch.float32, 256, "heads wider than 128"),
        (lambda: kf.feature_maps.Elu(256, 2), torch.float32, 64, "heads wider than 128"),
        (lambda: Doubled(64, 2, 128), torch.float32, 64, "Doubled has no form"),
    ],
)
def test_what_the_kernels_take(build, dtype, value_dim, reason):
    found = why_no_form(build(), dtype, value_dim)
    assert found is None if reason is None else reason in found


class Doubled(kf.feature_maps.Favor):
    """A map that changes phi, and leaves the inherited form as it was."""

    def phi(self, x):
        return super().phi(2.0 * x)


@pytest.mark.parametrize(
    ("heads", "head_dim", "num_features", "causal", "measured"),
    [
        (8, 64, 32, False, 225),
        (8, 64, 128, False, 350),
        (8, 64, 256, False, 630),
        (12, 32, 64, False, 260),
        (1, 64, 128, False, 680),
        (16, 128, 256, False, 560),
        (8, 64, 32, True, 320),
        (8, 64, 128, True, 740),
        (8, 64, 256, True, 1500),
        (12, 32, 64, True, 550),
        (1, 64, 128, True, 1650),
        (16, 128, 64, True, 290),
    ],
)
def test_crossover_as_measured(heads, head_dim, num_features, causal, measured, monkeypatch):
    """On 2 threads, by interpolation between lengths."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    found = crossover_length(heads, head_dim, num_features, causal=causal)
    assert measured / 1.35 < found < measured * 1.35


@pytest.mark.parametrize(
    ("heads", "head_dim", "num_features", "measured"),
    [
        (8, 64, 32, 148),
        (8, 64, 128, 150),
        (8, 64, 256, 160),
        (12, 32, 128, 126),
        (1, 64, 128, 290),
        (16, 128, 128, 175),
    ],
)
def test_quadratic_form_as_measured(heads, head_dim, num_features, measured, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for factor, expected in ((1 / 1.35, True), (1.35, False)):
        length = round(factor * measured)
        assert is_quadratic_faster(length, length, heads, num_features, head_dim) is expected
