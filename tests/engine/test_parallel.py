"""A sequence in slices, over processes, is the whole sequence in one."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist

import kernelformer as kf
from kernelformer.engine import State
from kernelformer.engine.blockwise import Sequence, fold_sequence
from kernelformer.engine.parallel import combine
from kernelformer.feature_maps import Cosformer, Favor, FlexformerN, Hedgehog, RfaGated, Softmax

SCRIPT = """
import kernelformer as kf
from kernelformer.feature_maps import Cosformer, Favor, FlexformerN, Hedgehog

sizes = {2: [13, 287], 4: [90, 0, 150, 60]}[world]
start = sum(sizes[:rank])
mine = slice(start, start + sizes[rank])
sent = []

def counted(call):
    def run(*arguments, **named):
        tensors = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
        sent.append(sum(x.numel() * x.element_size() for x in tensors))
        return call(*arguments, **named)
    return run

dist.all_gather, dist.all_reduce = counted(dist.all_gather), counted(dist.all_reduce)

def grads(attention, q, k, v, mask, weights):
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attention(*inputs, mask)
    wanted = [*inputs, *attention.parameters()]
    # Padding's outputs are nobody's business.
    loss = (out * weights * mask[:, None, :, None]).sum()
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return out.detach(), found[:3], [torch.zeros_like(p) if g is None else g for g, p in zip(found[3:], wanted[3:])]

def error(a, b):
    return float((a - b).abs().max() / b.abs().max()) if a.numel() else 0.0

generator = torch.Generator().manual_seed(0)
q, k, v, weights = (torch.randn(2, heads, 300, 8, generator=generator) for heads in (4, 2, 2, 4))
mask = torch.ones(2, 300, dtype=torch.bool)
mask[1, 240:] = False  # with four processes, all that the last one holds of this row
narrow = [q, k, v, mask, weights]
wide = [x.double() for x in (q, k, v)] + [mask, weights.double()]
maps = [Hedgehog(8, 2, 16), Favor(8, 2, 16), FlexformerN(8, 2, 16), Cosformer(8, 2, max_length=4096)]
for feature_map in [Hedgehog(8, 2, 16), *(each.double() for each in maps)]:
    q, k, v, mask, weights = wide if feature_map.key_shift.dtype == torch.float64 else narrow
    for causal in (False, True):
        attention = kf.KernelAttention(feature_map, causal, below_crossover="ignore")
        name = f"{type(feature_map).__name__} {causal} {q.dtype}"
        out, d_inputs, d_own = grads(attention, q, k, v, mask, weights)
        attention.split_over(dist.group.WORLD)
        cut = [x[:, :, mine] for x in (q, k, v)]
        own_out, own_inputs, own_own = grads(attention, *cut, mask[:, mine], weights[:, :, mine])
        seen = mask[:, None, mine, None]
        with torch.no_grad():
            errors = [error(attention(*cut, mask[:, mine]) * seen, out[:, :, mine] * seen)]
        errors.append(error(own_out * seen, out[:, :, mine] * seen))
        errors += [error(a, b[:, :, mine]) for a, b in zip(own_inputs, d_inputs)]
        for a, b in zip(own_own, d_own):
            dist.all_reduce(a)
            if b.abs().max() > 1e-6:
                errors.append(error(a, b))
        found[name] = max(errors)

q, k, v, mask, weights = narrow
attention = kf.KernelAttention(Hedgehog(8, 2, 16), True, below_crossover="ignore")
first, rest = (x[:, :, :100] for x in (q, k, v)), (x[:, :, 100:] for x in (q, k, v))
expected, state = attention.stream(*first)
out, after = attention.stream(*rest, state)
attention.split_over(dist.group.WORLD)
halves = [slice(0, 40), slice(40, 100)] + [slice(100, 100)] * (world - 2)
_, state = attention.stream(*(x[:, :, halves[rank]] for x in (q, k, v)))
halves = [slice(100, 101), slice(101, 300)] + [slice(300, 300)] * (world - 2)
mine_out, split_after = attention.stream(*(x[:, :, halves[rank]] for x in (q, k, v)), state)
found["stream"] = error(mine_out, out[:, :, halves[rank].start - 100 : halves[rank].stop - 100])
found["state"] = max(error(a, b) for a, b in zip(split_after[:3], after[:3]))
found["length"] = int(split_after.length)

attention = kf.KernelAttention(Hedgehog(8, 2, 16), below_crossover="ignore")
whole = attention.remember(k, v, mask)
attention.split_over(dist.group.WORLD)
memory = attention.remember(k[:, :, mine], v[:, :, mine], mask[:, mine])
found["memory"] = max(error(a, b) for a, b in zip(memory[:3], whole[:3]))

for length in (20, 2000):
    sent.clear()
    x = torch.randn(1, 2, length, 8, generator=generator).requires_grad_()
    attention(x, x, x).sum().backward()
    found[f"bytes {length}"] = list(sent)
"""


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_together_are_one(run_ranks, world):
    """Outputs, gradients and states, in slices of unequal lengths, with one that is empty and one of padding alone."""
    for found in run_ranks(SCRIPT, world):
        counted = [found.pop("bytes 20"), found.pop("bytes 2000")]
        assert found.pop("length") == 300
        assert len(found) == 13
        assert max(error for name, error in found.items() if "float64" in name) < 1e-9, found
        assert max(found.values()) < 1e-5, found
        # One collective forward, one backward, of B · H · (M · Dv + M + 4) numbers a process.
        assert counted[0] == counted[1] == [world * 4 * 2 * (16 * 8 + 16 + 4)] * 2


def _states(feature_map, k, v, mask, cuts):
    slices = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    parts = [fold_sequence(feature_map, Sequence(k, k[:, :, rows], v[:, :, rows], mask[:, rows])) for rows in slices]
    return State(*(torch.stack(fields) for fields in zip(*parts, strict=True)))


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("kind", [Favor, FlexformerN, Hedgehog])
def test_states_are_a_monoid(kind, scale):
    generator = torch.Generator().manual_seed(1)
    k, v = (torch.randn(2, 2, 90, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    k = k * scale
    mask = torch.rand(2, 90, generator=generator) > 0.3
    mask[:, 50:70] = False
    feature_map = kind(8, 2, 16).double()
    whole = fold_sequence(feature_map, Sequence(k, k, v, mask))
    states = _states(feature_map, k, v, mask, [0, 20, 20, 50, 70, 90])
    everything = torch.ones(5, dtype=torch.bool)
    for order in (torch.arange(5), torch.tensor([3, 1, 4, 0, 2])):
        joined = combine(State(*(x[order] for x in states)), everything)
        for a, b in zip(joined, whole, strict=True):
            torch.testing.assert_close(a, b)
    left, right = (combine(states, torch.arange(5) < 2), combine(states, torch.arange(5) >= 2))
    both = combine(State(*(torch.stack(pair) for pair in zip(left, right, strict=True))), everything[:2])
    torch.testing.assert_close(both.kv, whole.kv)
    nothing = combine(states, torch.zeros(5, dtype=torch.bool))
    assert not nothing.kv.any()
    assert (nothing.log_max == -torch.inf).all()


def test_what_is_not_seen_does_not_enter():
    x = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    states = _states(Hedgehog(8, 1, 16), x, x, torch.ones(1, 8, dtype=torch.bool), [0, 4, 8])
    spoilt = State(*(x.clone() for x in states))
    spoilt.kv[1], spoilt.k_sum[1], spoilt.log_max[1] = torch.nan, torch.inf, 1e30
    seen = torch.tensor([True, False])
    for a, b in zip(combine(spoilt, seen), combine(states, seen), strict=True):
        assert torch.equal(a, b)


@pytest.fixture
def alone(tmp_path):
    """A group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("feature_map", "arguments", "message"),
    [
        (Softmax(8, 2), {}, "exact softmax"),
        (RfaGated(8, 2, 16), {"causal": True}, "the gate of RfaGated"),
        (Hedgehog(8, 2, 16), {"causal": True, "window": 4}, "window=4"),
        (Favor(8, 2, 16), {"backend": "triton"}, "triton"),
    ],
)
def test_what_cannot_be_split_is_refused(alone, feature_map, arguments, message):
    with pytest.raises(kf.KernelformerError, match=message):
        kf.KernelAttention(feature_map, group=alone, **arguments)


def test_packed_sequences_are_refused(alone):
    attention = kf.KernelAttention(Hedgehog(8, 2, 16), group=alone)
    x = torch.zeros(1, 2, 4, 8)
    with pytest.raises(kf.KernelformerError, match="packed"):
        attention(x, x, x, cu_seqlens=torch.tensor([0, 4]))


def test_only_maps_of_positions_exchange_lengths(alone, monkeypatch):
    calls = []
    gather = dist.all_gather
    monkeypatch.setattr(dist, "all_gather", lambda *a, **k: (calls.append(1), gather(*a, **k)))
    x = torch.zeros(1, 2, 4, 8)
    for feature_map, expected in ((Hedgehog(8, 2, 16), 1), (Cosformer(8, 2, max_length=64), 3)):
        calls.clear()
        kf.KernelAttention(feature_map, group=alone)(x, x, x)
        assert len(calls) == expected
