"""cos and sin in turns agree with torch's, in values, derivatives of every order and under transforms."""

from __future__ import annotations

import math

import pytest
import torch

from kernelformer.feature_maps import circle as module
from kernelformer.feature_maps.circle import TURN, circle, cosine


@pytest.fixture(autouse=True)
def _even_few_by_polynomials(monkeypatch):
    monkeypatch.setattr(module, "_FEW", 0)


def _plain(turns, amplitude):
    angles = turns / TURN
    return torch.cat([amplitude * angles.cos(), amplitude * angles.sin()], dim=-1)


def _plain_cosine(turns, amplitude):
    return amplitude * (turns / TURN).cos()


def _draw(*shape, number=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3, 1e5], ids=str)
def test_values(scale):
    turns, amplitude = scale * TURN * _draw(3, 5, 64), _draw(3, 5, 64, number=1)
    bound = 3e-7 * (turns / TURN).abs().clamp_min(1.0)
    error = (cosine(turns, 0.5).double() - _plain_cosine(turns.double(), 0.5)).abs()
    assert (error <= 0.5 * bound).all()
    bound = bound * amplitude.abs()
    error = (circle(turns, amplitude).double() - _plain(turns.double(), amplitude.double())).abs()
    assert (error <= torch.cat([bound, bound], dim=-1)).all()


def test_whole_and_half_turns():
    turns, one = torch.arange(-8, 9) / 4, torch.ones(())
    torch.testing.assert_close(circle(turns, one), _plain(turns, one), rtol=0, atol=2e-6)
    broken = torch.tensor([math.inf, -math.inf, math.nan])
    assert circle(broken, one).isnan().all()
    assert cosine(broken, 1.0).isnan().all()
    assert circle(torch.zeros(2, 0), one).shape == (2, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(4, 6), ()], ids=["each", "one"])
def test_derivatives(dtype, shape):
    turns, amplitude = _draw(4, 6).to(dtype).requires_grad_(), _draw(*shape, number=1).to(dtype).requires_grad_()
    weight, other = _draw(4, 12, number=2).to(dtype), _draw(4, 6, number=3).to(dtype)

    def derivatives(joined, alone):
        inputs = [turns, amplitude]
        total = (joined(turns, amplitude) * weight).sum() + (alone(turns, 0.5) * other).sum()
        found = torch.autograd.grad(total, inputs, create_graph=True)
        once = torch.autograd.grad(total, inputs, retain_graph=True)
        return *found, *once, *torch.autograd.grad(sum(x.square().sum() for x in found), inputs)

    for found, expected in zip(derivatives(circle, cosine), derivatives(_plain, _plain_cosine), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)


def test_forward_mode_and_transforms():
    turns, amplitude, *tangents = _draw(4, 4, 6).unbind()
    for ours, plain in (
        (circle, _plain),
        (lambda t, _: cosine(t, 0.5), lambda t, _: _plain_cosine(t, 0.5)),
    ):
        with torch.autograd.forward_ad.dual_level():
            out = ours(*map(torch.autograd.forward_ad.make_dual, (turns, amplitude), tangents))
            found = torch.autograd.forward_ad.unpack_dual(out).tangent
        expected = torch.func.jvp(plain, (turns, amplitude), tuple(tangents))[1]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(torch.vmap(ours)(turns, amplitude), plain(turns, amplitude), rtol=1e-5, atol=1e-6)
