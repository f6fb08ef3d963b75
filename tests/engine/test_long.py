"""Lengths that others stop short of: a million streamed tokens, and more than 2^31 elements."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Elu, Favor, FlexformerS, Hedgehog

PIECES = (1, 997, 1, 1, 3000, 64, 1, 5935)


def _stream(attention, inputs):
    """Outputs of the last piece, and the state after each round of pieces."""
    state, states, start, out = None, [], 0, None
    while start < inputs[0].shape[2]:
        for size in PIECES:
            rows = slice(start, start + size)
            out, state = attention.stream(*(x[:, :, rows] for x in inputs), state)
            start += size
        states.append(state)
    return out, states


@pytest.mark.parametrize("length", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Favor, FlexformerS, Hedgehog])
def test_a_long_stream(kind, length):
    """Its state keeps its size, and its error against a restart in float64."""
    assert length % sum(PIECES) == 0
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 1, length, 8, generator=generator) for _ in range(3)]
    attention = kf.KernelAttention(kind(8, 1, 16), causal=True, below_crossover="ignore")
    with torch.no_grad():
        out, states = _stream(attention, inputs)
        assert {tuple(x.shape for x in state) for state in states} == {tuple(x.shape for x in states[0])}
        assert {x.dtype for x in states[-1][:4]} == {torch.float32}
        assert int(states[-1].length) == length
        whole = attention.double()(*(x.double() for x in inputs))
    torch.testing.assert_close(out.double(), whole[:, :, -PIECES[-1] :], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_more_than_two_to_the_31_elements(causal):
    """Every token is a window of one sequence: q and k and their indices are large, their memory is not."""
    heads, dim = 8, 64
    length = 2**31 // (heads * dim) + 1000
    generator = torch.Generator().manual_seed(1)
    base, v = torch.randn(length + dim, generator=generator), torch.randn(1, 1, length, 1, generator=generator)
    x = base.as_strided((1, heads, length, dim), (0, 0, 1, 1))
    assert x.numel() > 2**31
    attention = kf.KernelAttention(Elu(dim, heads), causal, below_crossover="ignore")
    with torch.no_grad():
        out = attention(x, x, v.expand(1, heads, length, 1))
    kv, k_sum, expected = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64), {}
    features = []
    for start in range(0, length, 1 << 17):
        rows = slice(start, min(start + (1 << 17), length))
        features = torch.nn.functional.elu(x[0, 0, rows].double() * dim**-0.25) + 1.0
        kv, k_sum = kv + features.T @ v[0, 0, rows, 0].double(), k_sum + features.sum(0)
        expected[rows.stop - 1] = float((features[-1] @ kv) / (features[-1] @ k_sum))
    last = features[-100:]
    if causal:
        for row, value in expected.items():
            assert float(out[0, 0, row, 0]) == pytest.approx(value, abs=1e-6)
            assert float(out[0, -1, row, 0]) == pytest.approx(value, abs=1e-6)
    else:
        found = (last @ kv) / (last @ k_sum)
        torch.testing.assert_close(out[0, :, -100:, 0].double(), found.expand(heads, -1), rtol=1e-3, atol=1e-6)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc")
@pytest.mark.parametrize("kind", [Favor, FlexformerS, Hedgehog])
def test_a_million_tokens_in_bfloat16(kind):
    """The float32 state stays within 1e-3 of float64's on the same inputs, outputs within bfloat16, memory flat.

    Outputs are rounded to bfloat16, and so are factors of products where the CPU has instructions for it: 2e-3 each.
    """
    piece, pieces, heads, dim = 4000, 250, 2, 16
    narrow = kf.KernelAttention(kind(dim, heads, 32), causal=True, below_crossover="ignore")
    wide = copy.deepcopy(narrow).double()
    state, exact, sizes, errors = None, None, [], []
    with torch.no_grad():
        for number in range(pieces):
            generator = torch.Generator().manual_seed(number)
            # A mean that does not vanish: sums that only cancel would hide what is lost.
            q, k, v = (torch.randn(1, heads, piece, dim, generator=generator) + 0.5 for _ in range(3))
            inputs = [x.bfloat16() for x in (q, k, v)]
            out, state = narrow.stream(*inputs, state)
            reference, exact = wide.stream(*(x.double() for x in inputs), exact)
            sizes.append(_resident())
            errors.append(float((out.double() - reference).norm() / reference.norm()))
    assert out.dtype == torch.bfloat16
    assert state.kv.dtype == torch.float32
    assert int(state.length) == piece * pieces
    for name in ("kv", "k_sum", "mass"):
        found, wanted = getattr(state, name).double(), getattr(exact, name)
        # Both at the larger reference.
        shift = torch.exp(state.log_max.double() - exact.log_max).reshape(1, heads, *[1] * (found.ndim - 2))
        assert float((found * shift - wanted).norm() / wanted.norm()) < 1e-3, name
    assert max(errors) < 4e-3
    assert max(errors[-20:]) < 1.2 * max(errors[:20])
    # The inputs alone are 192 MB.
    assert max(sizes[pieces // 2 :]) - max(sizes[: pieces // 4]) < 16 * 2**20
