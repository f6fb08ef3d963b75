"""Two towers: padding changes nothing, texts are read apart, and a converted model is saved and loaded."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf

transformers = pytest.importorskip("transformers")
BertForMeanPairs = pytest.importorskip("kernelformer.hf").BertForMeanPairs


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
        initializer_range=0.3,
    )
    return BertForMeanPairs(config).eval()


IDS = torch.tensor([[[3, 4, 5, 0], [6, 7, 0, 0]], [[8, 9, 0, 0], [3, 4, 5, 0]]])


@pytest.mark.parametrize("kernel", [None, "elu"])
def test_padding_changes_nothing(model, kernel):
    if kernel is not None:
        kf.convert(model, kernel, example={"input_ids": IDS})
    short = model(input_ids=IDS, attention_mask=(IDS > 0).long()).logits
    longer = torch.nn.functional.pad(IDS, (0, 3))
    assert torch.allclose(model(input_ids=longer, attention_mask=(longer > 0).long()).logits, short, atol=1e-5)


def test_towers_do_not_see_each_other(model):
    seen = []
    model.bert.register_forward_hook(lambda *call: seen.append(call[-1].last_hidden_state))
    changed = IDS.clone()
    changed[:, 1] = 11
    for ids in (IDS, changed):
        model(input_ids=ids)
    assert torch.equal(seen[0][::2], seen[1][::2]) and not torch.equal(seen[0][1::2], seen[1][1::2])


def test_saved_and_loaded(model, tmp_path):
    kf.convert(model, "elu", example={"input_ids": IDS}).save_pretrained(tmp_path)
    loaded = kf.load(tmp_path)
    assert type(loaded) is BertForMeanPairs
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=IDS).logits, model(input_ids=IDS).logits)


def test_the_loss_is_the_cross_entropy(model):
    found = model(input_ids=IDS, labels=torch.tensor([0, 1]))
    assert torch.equal(found.loss, torch.nn.functional.cross_entropy(found.logits, torch.tensor([0, 1])))
