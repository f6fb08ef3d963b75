"""The engine against sums written out by hand, one row at a time."""

from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import (
    attend_bidirectional,
    attend_causal,
    attend_quadratic,
    attend_reference,
    attend_step,
    empty_state,
)
from kernelformer.engine.state import normalise

FLOORS = [0.0, 0.3]


def features(length, heads=2, width=3, *, logs=True, hidden=0, number=0, spread=1.0):
    generator = torch.Generator().manual_seed(number)
    values = torch.rand(2, heads, length, width, generator=generator, dtype=torch.float64)
    values = values / values.norm(dim=-1, keepdim=True)
    log_scale = spread * torch.randn(2, heads, length, generator=generator, dtype=torch.float64) if logs else None
    if hidden:
        log_scale[:, :, :hidden] = -math.inf
    return kf.Features(values, log_scale)


def values(length, number=5):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(2, 2, length, 4, generator=generator, dtype=torch.float64)


def by_hand(q, k, v, floor, causal):
    """No running maximum, no shift, no vectors: the formula."""
    groups = q.values.shape[1] // k.values.shape[1]
    out = torch.zeros(*q.values.shape[:-1], v.shape[-1], dtype=torch.float64)
    for b, h, i in ((b, h, i) for b in range(2) for h in range(q.values.shape[1]) for i in range(q.values.shape[2])):
        num, den, mass = torch.zeros(v.shape[-1], dtype=torch.float64), 0.0, 0.0
        for j in range(i + 1 if causal else k.values.shape[2]):
            scale = math.exp(k.log_scale[b, h // groups, j]) if k.log_scale is not None else 1.0
            weight = float(q.values[b, h, i] @ k.values[b, h // groups, j]) * scale
            num, den, mass = num + weight * v[b, h // groups, j], den + weight, mass + scale
        if mass > 0:
            out[b, h, i] = num / max(den, floor * mass)
    return out


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize(
    "keys", [{"logs": False}, {}, {"hidden": 2}, {"hidden": 7}], ids=["flat", "logs", "some", "none"]
)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_every_path_is_the_formula(floor, heads, keys, causal):
    q, k, v = features(7, heads, number=1), features(7, **keys), values(7)
    expected = by_hand(q, k, v, floor, causal)
    outs = {"reference": attend_reference(q, k, v, causal=causal, floor=floor)}
    if causal:
        for size in (1, 2, 7, 64):
            outs[f"chunks of {size}"] = attend_causal(q, k, v, floor=floor, chunk_size=size)[0]
    else:
        outs["linear"] = attend_bidirectional(q, k, v, floor=floor)
        outs["quadratic"] = attend_quadratic(q, k, v, floor=floor)
    for name, attended in outs.items():
        torch.testing.assert_close(attended.out, expected, msg=lambda text, name=name: f"{name}: {text}")
        assert torch.equal(attended.floored, outs["reference"].floored), name


@pytest.mark.parametrize("floor", FLOORS)
def test_steps_are_the_formula(floor):
    q, k, v = features(9, 4, number=1), features(9, hidden=2, spread=200.0), values(9)
    state = empty_state(2, 2, 3, 4, torch.float64, v.device)
    outs = []
    for row in range(9):
        one = slice(row, row + 1)
        attended, state = attend_step(
            kf.Features(q.values[:, :, one]),
            kf.Features(k.values[:, :, one], k.log_scale[:, :, one]),
            v[:, :, one],
            state,
            floor=floor,
        )
        outs.append(attended.out)
    expected = attend_reference(q, k, v, causal=True, floor=floor).out
    torch.testing.assert_close(torch.cat(outs, dim=2), expected)
    whole = attend_causal(q, k, v, floor=floor)[1]
    for one, other in zip(state, whole, strict=True):
        torch.testing.assert_close(one, other)


def test_the_state_is_the_sums():
    k, v = features(9, spread=3.0), values(9)
    state = attend_causal(k, k, v, chunk_size=4)[1]
    top = k.log_scale.amax(-1)
    weights = (k.log_scale - top[..., None]).exp()
    torch.testing.assert_close(state.log_max, top)
    torch.testing.assert_close(state.mass, weights.sum(-1))
    torch.testing.assert_close(state.k_sum, (weights[..., None] * k.values).sum(-2))
    torch.testing.assert_close(state.kv, (weights[..., None] * k.values).mT @ v)
    assert int(state.length) == 9


@pytest.mark.parametrize("shift", [-5000.0, 300.0, 5000.0])
def test_a_common_scale_of_the_keys_cancels(shift):
    """exp(300) is beyond float32, exp(5000) beyond float64."""
    q, k, v = (features(20, number=1), features(20), values(20))
    shifted = kf.Features(k.values, k.log_scale + shift)
    for floor in FLOORS:
        for attend in (attend_bidirectional, attend_quadratic, lambda *a, **o: attend_causal(*a, **o)[0]):
            torch.testing.assert_close(attend(q, shifted, v, floor=floor).out, attend(q, k, v, floor=floor).out)


def test_the_floor_is_relative_to_the_mass():
    num, mass = torch.ones(4, 1), torch.tensor([1.0, 1.0, 1e-20, 0.0])
    den = torch.tensor([0.5, -0.5, 1e-22, 0.0])
    out, floored = normalise(num, den, mass, 0.1)
    torch.testing.assert_close(out[:, 0], torch.tensor([2.0, 10.0, 1e21, 0.0]))
    assert floored.tolist() == [False, True, True, False]


def test_a_denominator_that_underflowed_gives_zero():
    num = torch.full((3, 1), 1e-31, requires_grad=True)
    den = torch.tensor([1e-31, 1e-44, 0.0], requires_grad=True)
    out, floored = normalise(num, den, torch.ones(3), 0.0)
    assert floored.all()
    assert not out.any()
    out.sum().backward()
    assert not num.grad.any()
    assert not den.grad.any()


def test_the_floor_keeps_gradients_bounded():
    den = torch.tensor([1e-30, -1.0, 0.0499, 0.0501], requires_grad=True)
    out, _ = normalise(torch.ones(4, 1), den, torch.ones(4), 0.05)
    out.sum().backward()
    assert den.grad.abs().max() <= 1 / 0.05**2
    assert not den.grad[:3].any()
