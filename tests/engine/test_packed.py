"""Packed sequences equal one run each; a memory of keys equals cross-attention."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Favor, FlexformerN

LENGTHS = (5, 0, 90, 1, 0)


def _draw(length, heads, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, length, 4, generator=generator, dtype=torch.float64)


@pytest.fixture(params=[Favor, FlexformerN], ids=lambda kind: kind.__name__)
def feature_map(request):
    return request.param(4, 2, 6).double()


@pytest.fixture
def packed():
    return [_draw(sum(LENGTHS), heads, seed=seed).requires_grad_() for seed, heads in enumerate((4, 2, 2))]


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_equal_to_one_run_each(feature_map, causal, packed):
    attention = kf.KernelAttention(feature_map, causal)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    out = attention(*packed, cu_seqlens=offsets)
    weight = _draw(sum(LENGTHS), 4, seed=9)
    found = torch.autograd.grad((out * weight).sum(), packed)
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        alone = [x[:, :, start:end].detach().requires_grad_() for x in packed]
        expected = attention(*alone)
        assert torch.equal(out[:, :, start:end], expected)
        grads = torch.autograd.grad((expected * weight[:, :, start:end]).sum(), alone)
        for a, b in zip(found, grads, strict=True):
            torch.testing.assert_close(a[:, :, start:end], b)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [([0, 5], "rise from 0 to the length 96"), ([1, 96], "rise"), ([0, 50, 40, 96], "rise"), ([0.0, 96.0], "int32")],
)
def test_bad_offsets(feature_map, packed, offsets, message):
    with pytest.raises(kf.ShapeError, match=message):
        kf.KernelAttention(feature_map)(*packed, cu_seqlens=torch.tensor(offsets))


def test_mask_and_offsets_together(feature_map, packed):
    mask = torch.ones(1, 96, dtype=torch.bool)
    with pytest.raises(kf.KernelformerError, match="not both"):
        kf.KernelAttention(feature_map)(*packed, mask, cu_seqlens=torch.tensor([0, 96]))


def test_more_than_one_row(feature_map):
    q, k, v = _draw(6, 4, batch=2), _draw(6, 2, batch=2), _draw(6, 2, batch=2)
    with pytest.raises(kf.ShapeError, match="batch size 1"):
        kf.KernelAttention(feature_map)(q, k, v, cu_seqlens=torch.tensor([0, 6]))


@pytest.mark.parametrize("num_heads", [2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_memory_decodes_step_by_step(num_heads, masked):
    attention = kf.KernelAttention(FlexformerN(4, num_heads, 6).double())
    q, k, v = _draw(7, 4, batch=2), _draw(33, 2, batch=2, seed=1), _draw(33, 2, batch=2, seed=2)
    mask = torch.rand(2, 33, generator=torch.Generator().manual_seed(3)) > 0.4 if masked else None
    memory = attention.remember(k, v, mask)
    steps = [attention.recall(q[:, :, i : i + 1], memory, start=i) for i in range(7)]
    torch.testing.assert_close(torch.cat(steps, dim=2), attention(q, k, v, mask))


def test_no_memory_for_causal_attention(feature_map):
    attention = kf.KernelAttention(feature_map, causal=True)
    with pytest.raises(kf.KernelformerError, match="stream"):
        attention.remember(_draw(3, 2), _draw(3, 2))
