from __future__ import annotations

import torch

import kernelformer as kf
from kernelformer.feature_maps import Hedgehog


def test_half_space_is_the_first_half() -> None:
    x = torch.randn(1, 2, 3, 6, generator=torch.Generator().manual_seed(0))
    half, full = Hedgehog(6, 2, 6, half_space=True), Hedgehog(6, 2, 12)
    assert torch.equal(half.omega, full.omega)
    torch.testing.assert_close(half.phi(x).values, full.phi(x).values[..., :6])
    assert Hedgehog(6, 2, 7, half_space=True).phi(x).values.shape[-1] == 7
    kf.testing.check_feature_map(Hedgehog(6, 2, 7, half_space=True))
