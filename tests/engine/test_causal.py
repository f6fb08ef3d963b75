"""What later tokens may hold without touching a bit of earlier rows, and scales far apart within a block."""

from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import attend_causal, attend_reference
from kernelformer.engine.scales import HEADROOM, references, split_scales
from kernelformer.feature_maps import Favor, FlexformerN, Hedgehog

LENGTH, CUT = 150, 40


def _draw(heads=2, seed=0):
    return torch.randn(1, heads, LENGTH, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("which", [1, 2], ids=["k", "v"])
@pytest.mark.parametrize("kind", [Favor, FlexformerN, Hedgehog])
def test_a_later_token_that_is_not_finite(kind, which, bad):
    attention = kf.KernelAttention(kind(4, 2, 6), causal=True, below_crossover="ignore")
    inputs = [_draw(4), _draw(seed=1), _draw(seed=2)]
    with torch.no_grad():
        clean = attention(*inputs)
        inputs[which] = inputs[which].clone()
        inputs[which][:, :, CUT] = bad
        spoilt = attention(*inputs)
    assert torch.equal(clean[:, :, :CUT], spoilt[:, :, :CUT])
    assert not spoilt[:, :, CUT].isfinite().all(), "what is not finite must show from its own row on"


@pytest.mark.parametrize("jumps", [(), (0,), (70,), (30, 31, 140)], ids=str)
@pytest.mark.parametrize("hidden", [0, 5])
def test_scales_far_apart(jumps, hidden):
    """Each jump exceeds the headroom; the first keys may be hidden."""
    log_scale = torch.zeros(1, 2, LENGTH)
    for jump in jumps:
        log_scale[:, 1, jump:] += 50.0
    log_scale[..., :hidden] = -math.inf
    generator = torch.Generator().manual_seed(3)
    q, k = (kf.Features(torch.rand(1, 2, LENGTH, 6, generator=generator), log_scale) for _ in range(2))
    v = _draw()
    (out, floored), state = attend_causal(q, k, v)
    expected = attend_reference(q, k, v, causal=True)
    torch.testing.assert_close(out.double(), expected.out, rtol=1e-5, atol=1e-5)
    assert torch.equal(floored, expected.floored)
    assert not out[:, :, :hidden].any()
    torch.testing.assert_close(state.log_max, log_scale.amax(-1))
    torch.testing.assert_close(state.mass, torch.exp(log_scale - log_scale.amax(-1, keepdim=True)).sum(-1))


def test_references_move_only_beyond_the_headroom():
    exponents = torch.tensor([0.0, HEADROOM, HEADROOM + 1, -300.0, 2 * HEADROOM + 1, 2 * HEADROOM + 2, 100.0])
    scales = split_scales((exponents * math.log(2.0)).double()[None, None], torch.full((1, 1), -math.inf).double())
    found = [(int(start), int(whole)) for start, whole, _ in references(scales)]
    assert found == [(0, 0), (2, 17), (5, 34), (6, 100)]


def test_powers_of_two_are_exact():
    exponents = torch.arange(-126.0, 128.0)
    assert torch.equal(torch.exp2(exponents), torch.ldexp(torch.ones(()).double(), exponents.int()).float())


def test_all_keys_hidden():
    log_scale = torch.full((1, 2, LENGTH), -math.inf)
    q = k = kf.Features(torch.rand(1, 2, LENGTH, 6, generator=torch.Generator().manual_seed(4)), log_scale)
    (out, floored), state = attend_causal(q, k, _draw())
    assert not out.any()
    assert not floored.any()
    assert not state.kv.any()
    assert (state.log_max == -math.inf).all()
