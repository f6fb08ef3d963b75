"""Everything that a custom operator would have to register holds for the forms that exist: no operator is needed."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import blockwise
from kernelformer.feature_maps import Favor, FlexformerN, Hedgehog

LENGTH = 70


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """The request is beyond one block, so that eager calls take the hand-written paths."""
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 1)
    torch._dynamo.reset()


@pytest.fixture(params=[Favor, FlexformerN, Hedgehog], ids=lambda kind: kind.__name__)
def feature_map(request):
    return request.param(4, 2, 6).double()


@pytest.fixture(params=[False, True], ids=["bidirectional", "causal"])
def attention(request, feature_map):
    return kf.KernelAttention(feature_map, request.param, below_crossover="ignore")


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, LENGTH, 4, generator=generator, dtype=torch.float64) for _ in range(3)]


def _loss(attention):
    return lambda *inputs: attention(*inputs).square().sum()


def _grads(attention, inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(_loss(attention)(*leaves), leaves)


def _close(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_compiled_with_gradients(attention, inputs):
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager", dynamic=False)
    _close([compiled(*inputs)], [attention(*inputs)])
    _close(_grads(compiled, inputs), _grads(attention, inputs))


def test_exported(attention, inputs):
    exported = torch.export.export(attention.eval(), tuple(inputs)).module()
    _close([exported(*inputs)], [attention(*inputs)])


def test_functional_gradients(attention, inputs):
    _close(torch.func.grad(_loss(attention), argnums=(0, 1, 2))(*inputs), _grads(attention, inputs))


def test_vectorised_over_a_new_dimension(attention, inputs):
    stacked = [torch.stack([x, 2.0 * x]) for x in inputs]
    expected = torch.stack([attention(*inputs), attention(*(2.0 * x for x in inputs))])
    _close([torch.func.vmap(attention)(*stacked)], [expected])


def test_hessian_vector_product(attention, inputs):
    way = torch.randn(inputs[1].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def slope(k):
        return torch.func.grad(_loss(attention), argnums=1)(inputs[0], k, inputs[2])

    found = torch.func.jvp(slope, (inputs[1],), (way,))[1]
    leaf = inputs[1].clone().requires_grad_()
    (first,) = torch.autograd.grad(_loss(attention)(inputs[0], leaf, inputs[2]), leaf, create_graph=True)
    _close([found], torch.autograd.grad(first, leaf, way))


@pytest.mark.parametrize("frozen", [False, True])
def test_forward_mode(attention, inputs, frozen):
    attention.requires_grad_(not frozen)
    way = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = torch.func.jvp(lambda q: attention(q, *inputs[1:]), (inputs[0],), (way,))[1]
    with torch.autograd.forward_ad.dual_level():
        out = attention(torch.autograd.forward_ad.make_dual(inputs[0], way), *inputs[1:])
        found = torch.autograd.forward_ad.unpack_dual(out).tangent
    _close([found], [expected])


def test_autocast_with_gradients(attention, inputs):
    attention.float()
    inputs = [x.float() for x in inputs]
    expected = _grads(attention, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = _grads(attention, inputs)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
