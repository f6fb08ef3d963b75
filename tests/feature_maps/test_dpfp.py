from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Dpfp


@pytest.mark.parametrize("nu", [1, 3, 9])
def test_features_are_products_of_neighbours(nu: int) -> None:
    x = torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    r = torch.cat([x, -x]).relu()
    expected = [r[j] * r[(j + i) % 10] for i in range(1, nu + 1) for j in range(10)]
    values, log_scale, _ = Dpfp(5, 1, nu=nu).phi(x[None, None, None])
    got = values[0, 0, 0] * log_scale.exp().item()
    torch.testing.assert_close(got, torch.stack([*expected, torch.ones(()).double()]))


@pytest.mark.parametrize("nu", [0, 10])
def test_nu_out_of_range(nu: int) -> None:
    with pytest.raises(kf.KernelformerError, match="nu must lie in 1 … 2 head_dim - 1 = 9"):
        Dpfp(5, 1, nu=nu)
