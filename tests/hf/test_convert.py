"""Conversion in place: what is converted, what is refused, and what a converted model computes."""

from __future__ import annotations

import pytest
import torch
import transformers

import kernelformer as kf
from kernelformer.hf import find_sites, kernels

ENCODERS = ("bert", "roberta", "distilbert")
DECODERS = ("llama", "gpt2", "qwen3")


def _hidden(model, inputs):
    with torch.no_grad():
        return model(**inputs).last_hidden_state


@pytest.mark.parametrize("family", ENCODERS + DECODERS)
def test_a_layer_that_stays_softmax_equals_sdpa_exactly(build, family, inputs):
    expected = _hidden(build(family), inputs)
    model = kf.convert(build(family), "elu")
    for module in list(model.modules()):
        if isinstance(module._modules.get("kernel"), kf.KernelAttention):
            module.kernel = None
    real = inputs["attention_mask"].bool()
    assert torch.equal(_hidden(model, inputs)[real], expected[real])


@pytest.mark.parametrize("family", ENCODERS + DECODERS)
def test_every_layer_is_converted_with_its_causality(build, family, inputs):
    model = kf.convert(build(family), "hedgehog", 16)
    found = list(kernels(model).values())
    assert len(found) == 2
    assert {kernel.causal for kernel in found} == {family in DECODERS}
    assert (_hidden(model, inputs) - _hidden(build(family), inputs)).abs().max() > 1e-4


@pytest.mark.parametrize("family", ENCODERS + DECODERS)
@pytest.mark.parametrize("kernel", ["hedgehog", "flexformer_n"])
def test_padding_changes_no_real_token(build, family, kernel, inputs):
    model = kf.convert(build(family), kernel, 16)
    padded = _hidden(model, inputs)[1, :8]
    alone = _hidden(model, {"input_ids": inputs["input_ids"][1:, :8]})[0]
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder_stays_causal(build, family, inputs):
    model = kf.convert(build(family), "hedgehog", 16)
    before = _hidden(model, {"input_ids": inputs["input_ids"]})[:, :7]
    changed = inputs["input_ids"].clone()
    changed[:, 7:] = 50
    torch.testing.assert_close(_hidden(model, {"input_ids": changed})[:, :7], before, rtol=0, atol=1e-6)


def test_layers_chooses_some(build, inputs):
    model = kf.convert(build("bert"), "elu", layers=[1])
    assert list(kernels(model)) == ["encoder.layer.1.attention.self.kernel"]
    first = model.encoder.layer[0].attention.self
    assert first.kernel is None


def test_position_bias_is_refused():
    config = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    # Older versions of transformers compute T5's attention outside the interface.
    with pytest.raises(kf.UnsupportedModelError, match=r"position bias|attention interface"):
        kf.convert(transformers.T5EncoderModel(config))


def test_attention_outside_the_interface_is_refused():
    config = transformers.DebertaV2Config(
        vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=37
    )
    with pytest.raises(kf.UnsupportedModelError, match="attention interface"):
        kf.convert(transformers.DebertaV2Model(config))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "hedghog"}, "near: hedgehog"),
        ({"kernel": "nowhere:Map"}, "could not be imported"),
        ({"kernel": "torch.nn:Linear"}, "no subclass"),
        ({"kernel": "hedgehog", "num_features": 7}, "even"),
        ({"layers": [2]}, "0 … 1"),
        ({"layers": []}, "0 … 1"),
        ({"kernel": "favor", "options": {"colour": 1}}, "options it does not take"),
    ],
)
def test_bad_requests_are_one_clear_error(build, arguments, message):
    with pytest.raises(kf.KernelformerError, match=message):
        kf.convert(build("bert"), **arguments)


def test_a_failed_conversion_leaves_the_model_as_it_was(build, inputs):
    model = build("bert")
    expected = _hidden(model, inputs)
    with pytest.raises(kf.KernelformerError):
        kf.convert(model, "hedgehog", 7)
    assert torch.equal(_hidden(model, inputs), expected)
    assert not hasattr(model.config, "kernelized")


def test_converting_twice_is_refused(build):
    model = kf.convert(build("bert"), "elu")
    with pytest.raises(kf.KernelformerError, match="already"):
        kf.convert(model, "elu")


def test_a_four_dimensional_mask_is_refused(build, inputs):
    model = kf.convert(build("bert"), "elu")
    with pytest.raises(kf.KernelformerError, match="padding mask"):
        model(input_ids=inputs["input_ids"], attention_mask=torch.ones(2, 1, 12, 12))


def test_sites_say_where_and_how_wide(build):
    site = find_sites(build("llama"))[1]
    assert (site.module, site.num_heads, site.num_kv_heads, site.head_dim) == ("layers.1.self_attn", 4, 2, 8)
    assert site.causal
    assert site.refusal is None


def test_layer_objective_hands_on_softmax_and_returns_its_value(build, inputs):
    model = kf.convert(build("bert"), "hedgehog", 16)

    def objective(call):
        assert call.softmax.shape == (2, 4, 12, 8)
        assert call.key_mask.shape == (2, 12)
        return (call.kernel(call.q, call.k, call.v, call.key_mask, call.scale) - call.softmax).square().mean()

    outputs = model(**inputs, layer_objective=objective, output_attentions=True)
    real = inputs["attention_mask"].bool()
    expected = _hidden(build("bert"), inputs)
    torch.testing.assert_close(outputs.last_hidden_state[real], expected[real], rtol=0, atol=1e-6)
    assert len(outputs.attentions) == 2
    assert all(value.requires_grad for value in outputs.attentions)
