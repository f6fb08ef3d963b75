"""cos and sin together agree with torch's, in values, derivatives of every order and under transforms."""

from __future__ import annotations

import math

import pytest
import torch

from kernelformer.feature_maps.circle import cos_sin


def _plain(angles):
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3, 1e5], ids=str)
def test_values(scale):
    angles = scale * torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(0))
    error = (cos_sin(angles).double() - _plain(angles.double())).abs()
    bound = 3e-7 * angles.abs().clamp_min(1.0)
    assert (error <= torch.cat([bound, bound], dim=-1)).all()


def test_whole_and_half_turns():
    angles = torch.arange(-8, 9) * (math.pi / 2)
    torch.testing.assert_close(cos_sin(angles), _plain(angles), rtol=0, atol=2e-6)
    assert cos_sin(torch.tensor([math.inf, -math.inf, math.nan])).isnan().all()
    assert cos_sin(torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_derivatives(dtype):
    angles = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    weight = torch.randn(4, 12, generator=torch.Generator().manual_seed(2)).to(dtype)

    def derivatives(function):
        (first,) = torch.autograd.grad((function(angles) * weight).sum(), angles, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), angles)[0]

    for found, expected in zip(derivatives(cos_sin), derivatives(_plain), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_forward_mode_and_transforms():
    angles, tangent = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(3))
    with torch.autograd.forward_ad.dual_level():
        out = cos_sin(torch.autograd.forward_ad.make_dual(angles, tangent))
        found = torch.autograd.forward_ad.unpack_dual(out).tangent
    expected = torch.func.jvp(_plain, (angles,), (tangent,))[1]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.vmap(cos_sin)(angles), _plain(angles), rtol=1e-5, atol=1e-6)
