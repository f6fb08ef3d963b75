from __future__ import annotations

import torch

from kernelformer.feature_maps import Favor, Lfk


def test_starts_at_favor_and_learns_its_rows(kernel, pair) -> None:
    lfk, favor = Lfk(5, 2, 12), Favor(5, 2, 12)
    assert torch.equal(kernel(lfk, *pair), kernel(favor, *pair))
    assert [name for name, _ in lfk.named_parameters()] == ["omega"]
