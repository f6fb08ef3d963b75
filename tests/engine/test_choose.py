"""The form is chosen by shape and gradients, named with a reason, and slowness is said once."""

from __future__ import annotations

import warnings

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import choose
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
        (500, False, True, "whole"),
        (20_000, False, True, "recompute"),
        (20_000, True, True, "recompute"),
        (500, True, False, "blocks"),
        (500, False, False, "blocks"),
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
