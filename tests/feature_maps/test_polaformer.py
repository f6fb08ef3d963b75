from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import kernelformer as kf
from kernelformer.feature_maps import Polaformer


def test_kernel(kernel, pair) -> None:
    polaformer = Polaformer(5, 2, power_range=2.0, opposite=0.3)
    with torch.no_grad():
        for number, parameter in enumerate(polaformer.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    size, power, share = (
        f(p.detach().double())
        for f, p in (
            (functional.softplus, polaformer.size),
            (lambda w: 1 + 2 * w.sigmoid(), polaformer.power),
            (torch.sigmoid, polaformer.mix),
        )
    )
    (q_plus, q_minus), (k_plus, k_minus) = (((t / size).relu() ** power, (-t / size).relu() ** power) for t in pair)
    expected = q_plus @ k_plus.mT + q_minus @ k_minus.mT
    expected = expected + (share * q_plus) @ k_minus.mT + (share * q_minus) @ k_plus.mT
    torch.testing.assert_close(kernel(polaformer, *pair), expected)


def test_starts() -> None:
    polaformer = Polaformer(5, 1)
    torch.testing.assert_close(functional.softplus(polaformer.size), torch.ones(1, 1, 5))
    torch.testing.assert_close(polaformer.mix.sigmoid(), torch.full((1, 1, 5), 0.1))


@pytest.mark.parametrize("options", [{"power_range": 0.0}, {"opposite": 0.0}, {"opposite": 1.0}])
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(kf.KernelformerError, match="power_range must be positive and opposite in"):
        Polaformer(5, 1, **options)
