from __future__ import annotations

import torch

from kernelformer.feature_maps import Random


def test_fixed_by_the_seed_and_never_learned() -> None:
    one, same, other = (Random(5, 2, 8, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    x = torch.randn(1, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one.phi(x).values, same.phi(x).values)
    assert not torch.equal(one.phi(x).values, other.phi(x).values)
    torch.testing.assert_close(one.phi(x).values, (x @ one.omega).softmax(-1))
    assert not list(one.parameters())
