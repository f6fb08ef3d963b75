"""Weights and shapes that are drawn are those that the model computes."""

from __future__ import annotations

import copy

import pytest
import torch

transformers = pytest.importorskip("transformers")

import kernelformer as kf  # noqa: E402
from kernelformer.bench.look import attention_weights, compare_clouds, kernel_shapes, projections  # noqa: E402

IDS = {"input_ids": torch.tensor([[2, 5, 9, 3, 11, 7]])}


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    return transformers.BertModel(transformers.BertConfig(vocab_size=20, initializer_range=0.1, **sizes)).eval()


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = transformers.LlamaConfig(
        vocab_size=20, num_key_value_heads=2, initializer_range=0.3, bos_token_id=None, eos_token_id=None, **sizes
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_weights_of_softmax_are_those_of_transformers(name, request):
    model = copy.deepcopy(request.getfixturevalue(name))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = [layer[0].mean(0) for layer in model(**IDS, output_attentions=True).attentions]
    model.set_attn_implementation("sdpa")
    found = attention_weights(kf.convert(model, "softmax"), IDS)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "window"), [("encoder", 0), ("decoder", 0), ("decoder", 2)])
def test_rows_of_kernels_sum_to_one_and_softmax_can_be_asked_of_the_same_queries(name, window, request):
    model = kf.convert(copy.deepcopy(request.getfixturevalue(name)), "hedgehog", 8, window=window)
    for softmax in (False, True):
        for weights in attention_weights(model, IDS, softmax=softmax):
            torch.testing.assert_close(weights.sum(-1), torch.ones(6), atol=1e-5, rtol=0)
            if name == "decoder":
                assert weights.triu(1).abs().max() == 0


def test_shapes(encoder, decoder):
    for kernel, width, wanted, tolerance in (("constant", None, 1.0, 1e-5), ("favor", 4096, None, 0.05)):
        shape = kernel_shapes(kf.convert(copy.deepcopy(encoder), kernel, width), IDS)[0]
        assert shape.distance[0] == 0 and shape.kernel[0] == pytest.approx(1.0, abs=1e-4)
        near = len([x for x in shape.distance if x < 1])
        for found, exact in zip(shape.kernel[:near], shape.softmax[:near], strict=True):
            assert found == pytest.approx(exact if wanted is None else wanted, abs=tolerance)
    assert kernel_shapes(kf.convert(copy.deepcopy(decoder), "rfa_gated", 8), IDS) == [None, None]


def test_clouds_hold_both_ends_and_keep_lengths(encoder):
    model = kf.convert(copy.deepcopy(encoder), "flexformer_s", 16)
    before = projections(model)
    after = [omega * 2 for omega in before]
    clouds = compare_clouds([0, 1], before, after)
    assert [cloud["layer"] for cloud in clouds] == [0, 1]
    first = clouds[0]
    assert len(first["before"]) == len(first["after"]) == before[0].shape[2]
    assert first["lengths_after"] == pytest.approx([2 * x for x in first["lengths_before"]], abs=2e-4)
    assert projections(kf.convert(copy.deepcopy(encoder), "elu")) == []
