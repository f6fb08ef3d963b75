"""Block by block gives what all features at once give: outputs, states, gradients of every order."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import kernelformer as kf
from kernelformer.engine import blockwise, choose, empty_state
from kernelformer.engine.causal import plan_scales
from kernelformer.feature_maps import Favor, FlexformerN, FlexformerS, Hedgehog

LENGTH = 150


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 1)


@pytest.fixture(params=[Favor, FlexformerN, Hedgehog], ids=lambda kind: kind.__name__)
def feature_map(request):
    return request.param(4, 2, 6).double()


@pytest.fixture(params=[False, True], ids=["bidirectional", "causal"])
def attention(request, feature_map):
    return kf.KernelAttention(feature_map, request.param, below_crossover="ignore")


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)
    heads = (4, 2, 2)
    return [torch.randn(2, h, LENGTH, 4, generator=generator, dtype=torch.float64).requires_grad_() for h in heads]


@pytest.fixture
def weight():
    return torch.randn(2, 4, LENGTH, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def whole(monkeypatch):
    """Runs a function with all features at once."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(choose, "choose", lambda *_, **__: choose.Choice("whole", 0, ""))
            return function()

    return run


def _mask():
    return torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(2)) > 0.4


def _close(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_the_forms_under_test(attention, inputs):
    def backend():
        sequence = blockwise.Sequence(*inputs)
        return choose.choose(attention.feature_map, sequence, causal=attention.causal, linear=True).backend

    assert backend() == "recompute"
    with torch.no_grad():
        assert backend() == "blocks"


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_outputs_and_gradients(attention, inputs, weight, whole, masked):
    mask = _mask() if masked else None
    tensors = [*inputs, *attention.parameters()]

    def run():
        out = attention(*inputs, key_mask=mask)
        return [out, *torch.autograd.grad((out * weight).sum(), tensors)]

    expected = whole(run)
    _close(run(), expected)
    with torch.no_grad():
        _close([attention(*inputs, key_mask=mask)], expected[:1])


def test_gradients_with_scales_far_apart(inputs, weight, whole):
    """Keys whose scale jumps several times within a block."""
    feature_map = FlexformerS(4, 2, 6).double()
    attention = kf.KernelAttention(feature_map, causal=True)
    q, k, v = inputs
    growth = torch.ones(LENGTH, 1, dtype=torch.float64)
    growth[[3, 10, 11, 40, 140]] = torch.tensor([[8.0], [12.0], [18.0], [25.0], [40.0]], dtype=torch.float64)
    features = feature_map.map_k((k * growth)[:, :, :32])
    plan = plan_scales(features, empty_state(2, 2, 6, 4, torch.float64, k.device))
    assert len(plan.parts) > 2

    def run():
        out = attention(q, k * growth, v)
        return [out, *torch.autograd.grad((out * weight).sum(), [*inputs, *attention.parameters()])]

    _close(run(), whole(run))


@pytest.mark.parametrize("factor", [0.1, 30.0, 1e6])
@pytest.mark.parametrize("cut", [1, 33, 70])
def test_no_bit_of_a_gradient_of_the_past_changes(feature_map, inputs, weight, cut, factor):
    attention = kf.KernelAttention(feature_map.float(), causal=True)
    found = []
    for times in (1.0, factor):
        q, k, v = (x.detach().float() for x in inputs)
        k[:, :, cut:] *= times
        leaves = [x.requires_grad_() for x in (q, k, v)]
        early = (attention(*leaves) * weight)[:, :, :cut]
        found.append([early, *torch.autograd.grad(early.sum(), leaves)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one[:, :, :cut], other[:, :, :cut])
        assert not other[:, :, cut:].any()


def test_second_derivatives(attention, inputs, weight, whole):
    tensors = [*inputs, *attention.parameters()]

    def run():
        first = torch.autograd.grad((attention(*inputs) * weight).sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in first), tensors)

    _close(run(), whole(run))


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(attention, inputs, weight, reentrant):
    (attention(*inputs) * weight).sum().backward()
    expected = [x.grad.clone() for x in inputs]
    for x in inputs:
        x.grad = None
    (checkpoint(attention, *inputs, use_reentrant=reentrant) * weight).sum().backward()
    _close([x.grad for x in inputs], expected)


def test_parameters_handed_in(attention, inputs, weight, whole):
    """The backward pass takes the parameters of the forward pass, not those the module has by then."""
    named = {name: (1.3 * p).detach().requires_grad_() for name, p in attention.named_parameters()}
    if not named:
        pytest.skip("nothing to learn")

    def run():
        out = torch.func.functional_call(attention, named, tuple(inputs))
        return torch.autograd.grad((out * weight).sum(), list(named.values()))

    _close(run(), whole(run))


def test_frequencies_redrawn_before_the_backward_pass(inputs):
    feature_map = Favor(4, 2, 6).double()
    out = kf.KernelAttention(feature_map, below_crossover="ignore")(*inputs)
    feature_map.reset_parameters(torch.Generator().manual_seed(5))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_run_through_the_state(feature_map, inputs, weight):
    attention = kf.KernelAttention(feature_map, causal=True)
    expected = torch.autograd.grad((attention(*inputs) * weight).sum(), inputs)
    outs, state = [], None
    for rows in (slice(0, 70), slice(70, 71), slice(71, 71), slice(71, LENGTH)):
        out, state = attention.stream(*(x[:, :, rows] for x in inputs), state)
        outs.append(out)
    _close(torch.autograd.grad((torch.cat(outs, dim=2) * weight).sum(), inputs), expected)


def test_only_some_inputs_need_gradients(attention, inputs, weight):
    expected = torch.autograd.grad((attention(*inputs) * weight).sum(), inputs)
    for i, x in enumerate(inputs):
        alone = [y if y is x else y.detach() for y in inputs]
        _close(torch.autograd.grad((attention(*alone) * weight).sum(), [x]), [expected[i]])
