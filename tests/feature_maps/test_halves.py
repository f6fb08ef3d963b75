"""Both softmaxes together agree with torch's, in values, derivatives of every order and under transforms."""

from __future__ import annotations

import pytest
import torch

from kernelformer.feature_maps.halves import two_softmaxes


def _plain(logits):
    return torch.cat([logits.softmax(-1), (-logits).softmax(-1)], dim=-1)


def _draw(*shape, number=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4, 1e30], ids=str)
def test_values(scale):
    logits = scale * _draw(3, 5, 64)
    # The exponent is rounded, once.
    tolerance = 1e-6 + 3e-7 * min(scale, 100.0)
    torch.testing.assert_close(two_softmaxes(logits), _plain(logits.double()).float(), rtol=tolerance, atol=1e-30)
    assert two_softmaxes(torch.zeros(2, 0, 3)).shape == (2, 0, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_derivatives(dtype):
    logits, weight = _draw(4, 6).to(dtype).requires_grad_(), _draw(4, 12, number=1).to(dtype)

    def derivatives(function):
        (first,) = torch.autograd.grad((function(logits) * weight).sum(), logits, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), logits)[0]

    for found, expected in zip(derivatives(two_softmaxes), derivatives(_plain), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_forward_mode_and_transforms():
    logits, tangent = _draw(2, 4, 6).unbind()
    with torch.autograd.forward_ad.dual_level():
        out = two_softmaxes(torch.autograd.forward_ad.make_dual(logits, tangent))
        found = torch.autograd.forward_ad.unpack_dual(out).tangent
    torch.testing.assert_close(found, torch.func.jvp(_plain, (logits,), (tangent,))[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.vmap(two_softmaxes)(logits), _plain(logits), rtol=1e-5, atol=1e-6)
