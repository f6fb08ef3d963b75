from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Taylor


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
def test_kernel_is_exact(packed: bool, scale: float, kernel, pair) -> None:
    x, y = (scale * t for t in pair)
    taylor = Taylor(5, 1, packed=packed)
    assert taylor.num_features == (21 if packed else 31)
    inner = x @ y.T
    torch.testing.assert_close(kernel(taylor, x, y)[0], 1 + inner + inner.square() / 2)


def test_the_floor_is_not_met_by_ordinary_inputs() -> None:
    q, k, v = 2 * torch.randn(3, 2, 2, 50, 16, generator=torch.Generator().manual_seed(0))
    attention = kf.KernelAttention(Taylor(16, 2))
    attention(q, k, v)
    assert attention.floored_share == 0


def test_one_dimension_and_other_widths() -> None:
    assert Taylor(1, 1).num_features == 3
    with pytest.raises(kf.KernelformerError, match="taylor has 21 features"):
        Taylor(5, 1, 64)
