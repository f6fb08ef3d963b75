"""Maps and attention behave as torch modules must: saved, copied, built without memory, compiled, exported."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import kernelformer as kf


def _leaf(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


def _inputs(draw, length=5, dtype=torch.float32):
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, -2:] = False
    mask[1, 0] = False
    return draw(length, dtype=dtype), mask


def test_the_contract(map_name, build):
    kf.testing.check_feature_map(build(map_name))
    kf.testing.check_feature_map(build(map_name, moved=False))


@pytest.mark.parametrize("head_dim", [1, 60])
def test_the_contract_at_other_widths(map_name, head_dim, build):
    kf.testing.check_feature_map(build(map_name, head_dim=head_dim, num_heads=3, num_features=34))


def test_same_seed_same_map(map_name, build, draw):
    q, k, v = draw(5)
    one, same, other = (kf.KernelAttention(build(map_name, moved=False, number=n), causal=True) for n in (0, 0, 1))
    assert torch.equal(one(q, k, v), same(q, k, v))
    one.feature_map.reset_parameters(torch.Generator().manual_seed(1))
    assert torch.equal(one(q, k, v), other(q, k, v))


def test_draws_ask_no_global_generator(map_name, build):
    """So they are the same on every process, whatever each has drawn before."""
    found = []
    for process in (0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(process)
            before = torch.get_rng_state()
            feature_map = build(map_name, moved=False)
            feature_map.reset_parameters()
            if hasattr(feature_map, "redraw"):
                feature_map.redraw()
            assert torch.equal(torch.get_rng_state(), before)
        found.append(feature_map.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_the_state_dict_holds_everything(map_name, build, draw):
    q, k, v = draw(5)
    saved, other = (kf.KernelAttention(build(map_name, number=n), causal=True) for n in (0, 5))
    expected = saved(q, k, v)
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(q, k, v), expected)
    assert torch.equal(pickle.loads(pickle.dumps(saved))(q, k, v), expected)


@pytest.mark.parametrize("assign", [True, False], ids=["assign", "to_empty"])
def test_built_without_memory_then_loaded(map_name, self_form, assign, build, draw):
    q, k, v = draw(self_form.queries)
    saved = self_form.attention(build(map_name))
    expected = self_form.run(saved, q, k, v)
    with torch.device("meta"):
        loaded = self_form.attention(build(map_name, moved=False))
    assert all(t.is_meta for t in (*loaded.parameters(), *loaded.buffers()))
    if not assign:
        loaded = loaded.to_empty(device="cpu")
    loaded.load_state_dict(saved.state_dict(), assign=assign)
    assert torch.equal(self_form.run(loaded, q, k, v), expected)
    assert loaded.floored_share == saved.floored_share
    loaded.load_state_dict(saved.state_dict())
    assert loaded.floored_share == 0.0


def test_gradients_reach_every_parameter(map_name, self_form, build, draw):
    attention = self_form.attention(build(map_name))
    self_form.run(attention, *_leaf(*draw(self_form.queries))).square().sum().backward()
    for name, parameter in attention.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


def test_nothing_is_counted_in_the_state_dict(map_name, self_form, build, draw):
    attention = self_form.attention(build(map_name))
    before = copy.deepcopy(attention.state_dict())
    self_form.run(attention, *draw(self_form.queries))
    after = attention.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


class _Both(torch.nn.Module):
    """Bidirectional, where there is such a form, and causal together: one compilation instead of two."""

    def __init__(self, feature_map):
        super().__init__()
        self.bidirectional = None if feature_map.is_gated else kf.KernelAttention(feature_map)
        self.causal = kf.KernelAttention(feature_map, causal=True)

    def forward(self, q, k, v, key_mask):
        first, state = self.causal.stream(q[:, :, :1], k[:, :, :1], v[:, :, :1], None, key_mask[:, :1])
        rest, _ = self.causal.stream(q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], state, key_mask[:, 1:])
        causal = torch.cat([first, rest], dim=2)
        return causal if self.bidirectional is None else self.bidirectional(q, k, v, key_mask), causal


class _MaskedProduct(torch.nn.Module):
    """Key features times the mask, summed with the values: the product that inductor 2.13 got wrong."""

    def __init__(self, feature_map):
        super().__init__()
        self.feature_map = feature_map

    def forward(self, q, k, v, key_mask):
        keys = self.feature_map.map_k(k).values * key_mask[:, None, :, None]
        queries = self.feature_map.map_q(q).values
        return (queries @ (keys.transpose(-1, -2) @ v)) / (queries @ keys.sum(-2)[..., None])


def _compare_compiled(module, draw, gradients, backend, length, dtype=torch.float32):
    inputs, mask = _inputs(draw, length, dtype)
    compiled = torch.compile(module, fullgraph=True, backend=backend, dynamic=False)
    found = []
    for run in (compiled, module):
        q, k, v = _leaf(*inputs)
        outs = run(q, k, v, mask)
        out = torch.cat(outs, dim=-1) if isinstance(outs, tuple) else outs
        found.append({"out": out.detach(), **gradients(out, module, q=q, k=k, v=v)})
    for name, expected in found[1].items():
        scale = float(expected.abs().max()) or 1.0
        torch.testing.assert_close(
            found[0][name], expected, rtol=1e-3, atol=1e-4 * scale, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_compiled_without_graph_breaks(map_name, build, draw, gradients, fresh_compiler):
    _compare_compiled(_Both(build(map_name).double()), draw, gradients, "aot_eager", 5, torch.float64)


def test_inductor_gradients_of_hedgehog(build, draw, gradients, fresh_compiler):
    """Right for Hedgehog as written; written as a concatenation of two softmaxes, the gradient of k was off by 2.9."""
    _compare_compiled(_MaskedProduct(build("hedgehog")), draw, gradients, "inductor", 40)


@pytest.mark.slow
@pytest.mark.bidirectional
@pytest.mark.parametrize("length", [5, 40])
def test_inductor_gradients(map_name, length, build, draw, gradients, fresh_compiler):
    _compare_compiled(kf.KernelAttention(build(map_name)), draw, gradients, "inductor", length)


@pytest.mark.slow
def test_inductor_causal_gradients(map_name, build, draw, gradients, fresh_compiler):
    _compare_compiled(kf.KernelAttention(build(map_name), causal=True), draw, gradients, "inductor", 70)


def test_exported(map_name, build, draw):
    (q, k, v), mask = _inputs(draw)
    module = _Both(build(map_name)).eval()
    exported = torch.export.export(module, (q, k, v, mask)).module()
    other, hidden = draw(5, number=21), mask.flip(0)
    for found, expected in zip(exported(*other, hidden), module(*other, hidden), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
