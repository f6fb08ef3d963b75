from __future__ import annotations

import torch

from kernelformer.feature_maps import Relu


def test_kernel(kernel, pair) -> None:
    x, y = pair
    x[0] = x[0].abs()  # at least one query has positive coordinates
    expected = x.relu() @ y.relu().T + (x <= 0).all(-1).double()[:, None]
    torch.testing.assert_close(kernel(Relu(5, 1), x, y)[0], expected)
