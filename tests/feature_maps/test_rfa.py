from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Rfa


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_unbiased_for_the_gaussian_kernel_on_the_sphere(temperature: float, assert_mean, pair) -> None:
    u, v = (t / t.norm(dim=-1, keepdim=True) for t in pair)
    target = torch.exp(-torch.cdist(u, v).square() / (2 * temperature**2))
    assert_mean(Rfa(5, 2000, 24, temperature=temperature), *pair, target)


def test_only_the_direction_counts(kernel, pair) -> None:
    rfa = Rfa(5, 1, 12)
    torch.testing.assert_close(kernel(rfa, *pair), kernel(rfa, 1e-30 * pair[0], 1e30 * pair[1]))


def test_a_zero_token_has_finite_gradients() -> None:
    x = torch.zeros(1, 1, 2, 5, requires_grad=True)
    features = Rfa(5, 1, 12).phi(x)
    (gradient,) = torch.autograd.grad(features.values.sum(), x)
    assert gradient.isfinite().all()
    torch.testing.assert_close(features.values.norm(dim=-1), torch.ones(1, 1, 2))


def test_sigma_is_learned_and_options_are_checked() -> None:
    assert [name for name, _ in Rfa(5, 1).named_parameters()] == ["sigma"]
    for options, message in (({"temperature": -1.0}, "temperature"), ({"floor": 0.0}, "floor"), ({}, "even")):
        with pytest.raises(kf.KernelformerError, match=message):
            Rfa(5, 1, 64 if options else 7, **options)
