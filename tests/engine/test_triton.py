"""The fused Triton kernels meet the reference: on a CUDA device, or without one in Triton's interpreter (conftest.py).

There float16 stands for bfloat16, too, which the interpreter does not multiply.
"""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import attend_reference, choose
from kernelformer.engine.blockwise import Sequence, empty_sums
from kernelformer.engine.causal import attend_causal

pytest.importorskip("triton")

from kernelformer.engine import triton_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAPS = {
    "elu": lambda dim: kf.feature_maps.Elu(dim, 2),
    "favor": lambda dim: kf.feature_maps.Favor(dim, 2, 24),
    "hedgehog": lambda dim: kf.feature_maps.Hedgehog(dim, 2, 24),
    "half-space": lambda dim: kf.feature_maps.Hedgehog(dim, 2, 20, half_space=True),
    "lfk": lambda dim: kf.feature_maps.Lfk(dim, 2, 16),
    "darkformer": lambda dim: kf.feature_maps.Darkformer(dim, 2, 16),
    "low rank": lambda dim: kf.feature_maps.Darkformer(dim, 2, 16, rank=3, shared=True),
}


@pytest.fixture(params=list(MAPS))
def feature_map(request):
    return _disturbed(MAPS[request.param](6))


def _disturbed(feature_map):
    """Nothing at its start value, so that no term is left untested."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in feature_map.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        feature_map.key_shift.copy_(0.5 * torch.randn(feature_map.key_shift.shape, generator=generator))
    return feature_map.to(DEVICE)


def _draw(length, *, keys=None, size=1.0, groups=1, dim=6, value_dim=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    q = size * torch.randn(2, 2 * groups, length, dim, generator=generator)
    k = size * torch.randn(2, 2, keys or length, dim, generator=generator)
    v = torch.randn(2, 2, keys or length, value_dim, generator=generator)
    return [x.to(DEVICE, dtype) for x in (q, k, v)]


def _reference(feature_map, sequence, causal):
    feature_map = feature_map.double()
    again = sequence._replace(q=sequence.q.double(), k=sequence.k.double(), v=sequence.v.double())
    (k, v), q = again.keys(feature_map), again.queries(feature_map)
    out = attend_reference(q, k, v, causal=causal).out
    feature_map.float()
    return out


def _fused(feature_map, sequence, causal, state=None):
    with torch.no_grad():
        return triton_attention.attend_fused(feature_map, sequence, causal=causal, state=state, needs_grad=False)


@pytest.mark.parametrize("causal", [False, True])
def test_meets_the_reference(feature_map, causal):
    """Not a multiple of the block, a padded tail, queries in groups, memory that is not contiguous."""
    q, k, v = _draw(70, groups=2)
    q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k))
    mask = torch.ones(2, 70, dtype=torch.bool, device=DEVICE)
    mask[0, 65:] = mask[1, 3:8] = False
    sequence = Sequence(q, k, v, mask, scale=0.6)
    out = _fused(feature_map, sequence, causal)[0].out
    torch.testing.assert_close(out.double(), _reference(feature_map, sequence, causal), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_several_segments(monkeypatch, causal):
    monkeypatch.setattr(triton_attention, "PROGRAMS", 8)
    feature_map = _disturbed(MAPS["favor"](6))
    sequence = Sequence(*_draw(400))
    assert triton_attention._segment(4, 400) == 192
    out, state = _fused(feature_map, sequence, causal)
    torch.testing.assert_close(out.out.double(), _reference(feature_map, sequence, causal), atol=2e-5, rtol=2e-5)
    if causal:
        (k, v), q = sequence.keys(feature_map), sequence.queries(feature_map)
        for ours, theirs in zip(state, attend_causal(q, k, v)[1], strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-5)


def test_cross_attention(feature_map):
    sequence = Sequence(*_draw(3, keys=66))
    out = _fused(feature_map, sequence, False)[0].out
    torch.testing.assert_close(out.double(), _reference(feature_map, sequence, False), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", ["elu", "hedgehog", "darkformer"])
def test_split_anywhere_and_resumed(name):
    feature_map = _disturbed(MAPS[name](6))
    sequence = Sequence(*_draw(70))
    whole, after = _fused(feature_map, sequence, True)
    first, state = _fused(feature_map, sequence.cut(slice(0, 37)), True)
    rest, state = _fused(feature_map, sequence.cut(slice(37, 70)), True, state)
    torch.testing.assert_close(torch.cat([first.out, rest.out], dim=2), whole.out, atol=1e-5, rtol=1e-5)
    assert state.length == after.length == 70
    for ours, theirs in zip(state, after, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["elu", "favor", "hedgehog"])
def test_extreme_scales(name, causal):
    """Key scales of ±thousands: nothing overflows, and no row is lost to a later key."""
    feature_map = MAPS[name](6).to(DEVICE)
    q, k, v = _draw(70, size=30.0)
    k[:, :, 40] *= 30.0
    k[:, :, 66] = 0.0
    sequence = Sequence(q, k, v)
    attended = _fused(feature_map, sequence, causal)[0]
    off = (attended.out.double() - _reference(feature_map, sequence, causal)).abs().amax(-1)
    # A denominator that underflows in float32 is said to.
    assert off[~attended.floored].max() < 1e-3
    assert attended.floored.float().mean() < 0.1
    assert not attended.floored.any() or name == "favor"


@pytest.mark.parametrize("name", ["elu", "favor", "hedgehog"])
def test_a_later_key_changes_no_bit(name):
    feature_map = MAPS[name](6).to(DEVICE)
    q, k, v = _draw(70)
    before = _fused(feature_map, Sequence(q, k, v), True)[0].out
    k[:, :, 50:] *= 20.0
    # The largest scale that a key of favor can have.
    k[:, :, 50] = 0.0
    v[:, :, 50:] += 1.0
    after = _fused(feature_map, Sequence(q, k, v), True)[0].out
    assert torch.equal(before[:, :, :50], after[:, :, :50])
    assert not torch.equal(before[:, :, 50:], after[:, :, 50:])


@pytest.mark.parametrize("causal", [False, True])
def test_rows_that_see_nothing_are_zero_and_padding_is_not_read(feature_map, causal):
    q, k, v = _draw(70)
    mask = torch.zeros(2, 70, dtype=torch.bool, device=DEVICE)
    # A whole block first that shows nothing.
    mask[0, 40:] = True
    k[~mask[:, None].expand(2, 2, 70)] = torch.nan
    attended, _ = _fused(feature_map, Sequence(q, k, v, mask), causal)
    assert attended.out.isfinite().all()
    assert not attended.out[1].any()
    assert attended.out[0, :, :40].any() != causal
    assert attended.out[0, :, 40:].any()
    assert not attended.floored.any()


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision(feature_map, causal):
    sequence = Sequence(*_draw(70, dtype=torch.float16))
    out = _fused(feature_map, sequence, causal)[0].out
    assert out.dtype == torch.float16
    torch.testing.assert_close(out.double(), _reference(feature_map, sequence, causal), atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("name", ["favor", "lfk", "darkformer"])
def test_half_precision_keeps_the_digits_of_exponents(name):
    """Frequencies rounded to half precision would be off by hundredths in exponents of this size."""
    feature_map = MAPS[name](6).to(DEVICE)
    sequence = Sequence(*_draw(40, size=6.0, dtype=torch.float16))
    out = _fused(feature_map, sequence, False)[0].out
    torch.testing.assert_close(out.double(), _reference(feature_map, sequence, False), atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["hedgehog", "lfk"])
def test_gradients_are_those_of_torch(name, causal):
    feature_map = _disturbed(MAPS[name](6))
    q, k, v = (x.requires_grad_() for x in _draw(70))
    sequence = Sequence(q, k, v)
    wanted = [q, k, v, *feature_map.parameters()]
    attended, after = triton_attention.attend_fused(feature_map, sequence, causal=causal, state=None, needs_grad=True)
    loss = attended.out.square().sum() + (after.kv.square().sum() if causal else 0.0)
    found = torch.autograd.grad(loss, wanted)
    features = sequence.queries(feature_map), *sequence.keys(feature_map)
    if causal:
        expected, state = attend_causal(*features, state=empty_sums(feature_map, sequence))
        loss = expected.out.square().sum() + state.kv.square().sum()
    else:
        loss = kf.engine.attend_bidirectional(*features).out.square().sum()
    for ours, theirs in zip(found, torch.autograd.grad(loss, wanted), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_kernel_attention_takes_them(monkeypatch, causal):
    """Through the module, half precision and gradients included, the same as with torch's operators."""
    monkeypatch.setattr(choose, "why_not_fused", lambda *_: None)
    feature_map = _disturbed(MAPS["hedgehog"](6))
    q, k, v = _draw(70, groups=2, dtype=torch.float16)
    q.requires_grad_()
    mask = torch.ones(2, 70, dtype=torch.bool, device=DEVICE)
    mask[1, 60:] = False
    found = []
    for backend in ("triton", "torch"):
        attention = kf.KernelAttention(feature_map, causal, below_crossover="ignore", backend=backend)
        out = attention(q, k, v, mask)
        assert out.dtype == torch.float16
        (gradient,) = torch.autograd.grad(out[:, :, :60].float().square().sum(), q)
        found.append((out[:, :, :60], gradient[:, :, :60], attention.floored_share))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=5e-3)
