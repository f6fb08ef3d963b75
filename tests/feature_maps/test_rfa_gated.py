"""Gated sums: the recurrence of the paper, step by step, and what a gate may and may not do."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf


def _moved(spread: float, bias: float = 1.0) -> kf.FeatureMap:
    gated = kf.feature_maps.RfaGated(head_dim=4, num_heads=2, num_features=8).double()
    with torch.no_grad():
        gated.gate_weight.copy_(spread * torch.randn(2, 4, 1, generator=torch.Generator().manual_seed(1)))
        gated.gate_bias.fill_(bias)
    return gated


def _draw(length: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(3, 2, 2, length, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def _recurrence(gated, q, k, v):
    """S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t, z_t and the mass alike."""
    queries, keys = gated.map_q(q).values, gated.map_k(k).values
    scaled = k * k.shape[-1] ** -0.25
    gates = torch.sigmoid((scaled @ gated.gate_weight)[..., 0] + gated.gate_bias)
    kv, k_sum, mass = 0.0, 0.0, 0.0
    rows = []
    for t in range(q.shape[2]):
        gate, key = gates[:, :, t, None], keys[:, :, t]
        kv = gate[..., None] * kv + (1 - gate)[..., None] * key[..., None] * v[:, :, t, None, :]
        k_sum, mass = gate * k_sum + (1 - gate) * key, gate * mass + (1 - gate)
        num = (queries[:, :, t, None] @ kv)[:, :, 0]
        den = (queries[:, :, t] * k_sum).sum(-1, keepdim=True)
        rows.append(num / torch.maximum(den, gated.floor * mass))
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_the_recurrence(spread):
    gated, (q, k, v) = _moved(spread), _draw(150)
    found, expected = kf.KernelAttention(gated, causal=True)(q, k, v), _recurrence(gated, q, k, v)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_gradients_of_the_gate_through_many_blocks_and_steps():
    """The decay reaches across chunks, blocks and streamed pieces only through the state."""
    gated, (q, k, v) = _moved(1.0, bias=3.0), _draw(70)
    attention = kf.KernelAttention(gated, causal=True)
    weight = torch.randn(v.shape, generator=torch.Generator().manual_seed(2), dtype=v.dtype)
    wanted = torch.autograd.grad((_recurrence(gated, q, k, v) * weight).sum(), [gated.gate_weight, gated.gate_bias])
    state, outs = None, []
    for rows in (slice(0, 1), slice(1, 2), slice(2, 67), slice(67, 70)):
        out, state = attention.stream(q[:, :, rows], k[:, :, rows], v[:, :, rows], state)
        outs.append(out)
    found = torch.autograd.grad((torch.cat(outs, 2) * weight).sum(), [gated.gate_weight, gated.gate_bias])
    for one, other in zip(found, wanted, strict=True):
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_strong_gates_over_a_long_sequence_stay_exact():
    """The product of 3,000 gates of 0.27 is 1e-1700; only ratios of near ones are ever formed."""
    gated, (q, k, v) = _moved(0.0, bias=-1.0).float(), [x.float() for x in _draw(3000)]
    out = kf.KernelAttention(gated, causal=True)(q, k, v)
    alone = kf.KernelAttention(gated, causal=True)(q[:, :, -60:], k[:, :, -60:], v[:, :, -60:])
    torch.testing.assert_close(out[:, :, -1], alone[:, :, -1], rtol=1e-4, atol=1e-5)


def test_an_open_gate_is_rfa():
    gated = _moved(0.0, bias=30.0)
    plain = kf.feature_maps.Rfa(head_dim=4, num_heads=2, num_features=8).double()
    q, k, v = _draw(40)
    one, other = (kf.KernelAttention(feature_map, causal=True)(q, k, v) for feature_map in (gated, plain))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_bidirectional_attention_is_refused():
    with pytest.raises(kf.KernelformerError, match="causal=True"):
        kf.KernelAttention(_moved(0.0))
