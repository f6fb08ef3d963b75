from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Softmax


def inputs(heads: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(2, heads, 7, 8, generator=generator).double(),
        torch.randn(2, 2, 7, 8, generator=generator).double(),
        torch.randn(2, 2, 7, 3, generator=generator).double(),
    )


MASK = torch.tensor([[True] * 7, [False, True, True, False, True, False, False]])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_definition(causal: bool, masked: bool) -> None:
    q, k, v = inputs()
    mask = MASK if masked else None
    weights = torch.exp(0.3 * q @ k.repeat_interleave(2, dim=1).mT)
    if masked:
        weights = weights * MASK[:, None, None]
    if causal:
        weights = weights.tril()
    total = weights.sum(-1, keepdim=True)
    expected = weights @ v.repeat_interleave(2, dim=1) / torch.where(total > 0, total, 1.0)
    attention = kf.KernelAttention(Softmax(8, 2), causal=causal)
    torch.testing.assert_close(attention(q, k, v, mask, scale=0.3), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_padding_and_blind_rows_reach_nothing(causal: bool) -> None:
    q, k, v = inputs(2)
    attention = kf.KernelAttention(Softmax(8, 2), causal=causal)
    clean = attention(q, k, v, MASK)
    q, k, v = (t.masked_fill(~MASK[:, None, :, None], torch.nan).requires_grad_() for t in (q, k, v))
    out = attention(q, k, v, MASK)
    seen = MASK[:, None, :, None]
    torch.testing.assert_close(out.where(seen, 0.0), clean.where(seen, 0.0))
    for gradient in torch.autograd.grad(out.where(seen, 0.0).sum(), (q, k, v)):
        assert gradient.isfinite().all()
    assert not attention(*inputs(2), torch.zeros_like(MASK)).any()


def test_no_stream_and_no_features() -> None:
    attention = kf.KernelAttention(Softmax(8, 2), causal=True)
    with pytest.raises(kf.KernelformerError, match="no state of fixed size"):
        attention.stream(*inputs(2))
    with pytest.raises(kf.KernelformerError, match="no finite features"):
        Softmax(8, 2).phi(inputs(2)[0])


def test_known_by_name_and_no_entry_of_the_finite_maps() -> None:
    assert kf.feature_maps.find_feature_map("softmax") is Softmax
    assert "softmax" not in kf.FEATURE_MAPS
