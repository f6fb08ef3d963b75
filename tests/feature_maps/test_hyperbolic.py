from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Favor, Hyperbolic


@pytest.mark.parametrize("orthogonal", [True, False])
def test_unbiased(orthogonal: bool, assert_mean, pair) -> None:
    assert_mean(Hyperbolic(5, 2000, 12, orthogonal=orthogonal), *pair, torch.exp(pair[0] @ pair[1].T))


def test_no_worse_than_independent_draws_of_favor(kernel, pair) -> None:
    target = torch.exp(pair[0] @ pair[1].T)
    both, one = (
        (kernel(cls(5, 4000, 8, orthogonal=False), *pair) - target).square().mean() for cls in (Hyperbolic, Favor)
    )
    assert both < one


def test_odd_widths_are_refused() -> None:
    with pytest.raises(kf.KernelformerError, match="must be even, got 7"):
        Hyperbolic(5, 1, 7)
