from __future__ import annotations

import torch

import kernelformer as kf
from kernelformer.feature_maps import Constant


def test_mean_of_the_visible_values_and_zero_gradients() -> None:
    q, k, v = torch.randn(3, 2, 3, 6, 4, generator=torch.Generator().manual_seed(0))
    q[0, 0, 0, 0] = torch.nan
    q.requires_grad_()
    mask = torch.tensor([[True] * 6, [False, True, True, False, False, True]])
    out = kf.KernelAttention(Constant(4, 3))(q, k, v, mask)
    torch.testing.assert_close(out[1, :, 0], v[1, :, mask[1]].mean(-2))
    causal = kf.KernelAttention(Constant(4, 3), causal=True)(q, k, v)
    torch.testing.assert_close(causal, v.cumsum(2) / torch.arange(1, 7)[:, None])
    (gradient,) = torch.autograd.grad(causal.sum(), q)
    assert not gradient.any()
