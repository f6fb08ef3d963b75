from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Cosformer


def test_kernel(kernel, pair) -> None:
    x, y = pair[0].abs(), pair[1]
    distance = torch.arange(3)[:, None] - torch.arange(4)
    expected = (x @ y.relu().T) * torch.cos(math.pi * distance / 20)
    torch.testing.assert_close(kernel(Cosformer(5, 1, max_length=10), x, y)[0], expected)


def test_a_stream_gives_what_the_whole_gives() -> None:
    q, k, v = torch.randn(3, 1, 2, 12, 4, generator=torch.Generator().manual_seed(0))
    attention = kf.KernelAttention(Cosformer(4, 2, max_length=12), causal=True)
    state, outs = None, []
    for rows in (slice(0, 5), slice(5, 6), slice(6, 12)):
        out, state = attention.stream(q[:, :, rows], k[:, :, rows], v[:, :, rows], state)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, dim=2), attention(q, k, v))
    with pytest.raises(kf.KernelformerError, match="beyond max_length=12"):
        attention.stream(q[:, :, :1], k[:, :, :1], v[:, :, :1], state)


def test_positive_up_to_the_last_position() -> None:
    values = Cosformer(4, 1, max_length=7).map_k(torch.rand(1, 1, 7, 4)).values
    assert (values >= 0).all()


def test_max_length_is_needed_positive() -> None:
    with pytest.raises(kf.KernelformerError, match="max_length must be a positive integer, got 0"):
        Cosformer(4, 1, max_length=0)
