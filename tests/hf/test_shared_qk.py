"""Q = K = reshape(x): what the layer is given is its query and its key, and the projections are gone."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.engine import attend_reference
from kernelformer.hf import BertForMeanClassification, kernels


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_queries_and_keys_are_the_input_of_the_layer(build, family, inputs):
    model = kf.convert(build(family), "softmaxfeat", 16, shared_qk=True)
    seen = []
    kernel = next(iter(kernels(model).values()))
    kernel.register_forward_hook(lambda _, arguments, out: seen.append((*arguments, out)))
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
    q, k, v, mask, scale, out = seen[0]
    heads = states[0].unflatten(-1, (4, 8)).transpose(1, 2)
    assert torch.equal(q, heads) and torch.equal(k, heads)
    fm = kernel.feature_map.double()
    q, k, v = (x.double() for x in (q, k, v))
    expected = attend_reference(fm.map_q(q, scale), fm.map_k(k, scale, mask), v, floor=fm.floor).out
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_projections_are_gone_and_stay_gone(build, family, inputs, tmp_path):
    plain = sum(parameter.numel() for parameter in build(family).parameters())
    model = kf.convert(build(family), "favor", 16, layers=[1], shared_qk=True)
    assert plain - sum(parameter.numel() for parameter in model.parameters()) == 2 * (32 * 32 + 32)
    model.eval().save_pretrained(tmp_path)
    again = kf.load(tmp_path)
    assert again.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        assert torch.equal(again(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


def test_softmax_can_share_them_too(build, inputs):
    model = kf.convert(build("bert"), "softmax", shared_qk=True)
    layer = model.encoder.layer[0].attention.self
    with torch.no_grad():
        x = model.embeddings(inputs["input_ids"])
        found = layer(x)[0]
        q, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in (x, layer.value(x)))
        expected = torch.nn.functional.scaled_dot_product_attention(q, q, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, expected)


def test_autocast_meets_values_in_their_dtype(build, inputs):
    model = kf.convert(build("bert"), "softmaxfeat", 16, shared_qk=True)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(**inputs).last_hidden_state.isfinite().all()


def test_what_cannot_share_is_refused_and_left_alone(build):
    for family, reason in (("gpt2", "fused"), ("qwen3", "as many query as key heads")):
        model = build(family)
        before = model.state_dict().keys()
        with pytest.raises(kf.UnsupportedModelError, match=reason):
            kf.convert(model, "softmaxfeat", 16, shared_qk=True)
        assert model.state_dict().keys() == before


def test_the_mean_classifier_pools_real_tokens(tmp_path):
    from transformers import BertConfig

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=3,
    )
    model = BertForMeanClassification(config).eval()
    ids = torch.randint(1, 50, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    labels = torch.tensor([2, 0])
    with torch.no_grad():
        found = model(ids, attention_mask=mask, labels=labels)
        alone = torch.cat([model(ids[:1]).logits, model(ids[1:, :5]).logits])
        torch.testing.assert_close(found.logits, alone)
        torch.testing.assert_close(found.loss, torch.nn.functional.cross_entropy(alone, labels))
        hidden = model.bert(ids[:1]).last_hidden_state
        torch.testing.assert_close(found.logits[:1], model.classifier(hidden.mean(1)))
    kf.convert(model, "softmaxfeat", 8).save_pretrained(tmp_path)
    again = kf.load(tmp_path)
    assert type(again) is BertForMeanClassification and again.num_labels == 3
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)
