"""A saved model comes back bit-identical, or not at all."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import kernelformer as kf

ENCODERS = ("bert", "roberta", "distilbert")
DECODERS = ("llama", "gpt2", "qwen3")


@pytest.mark.parametrize("family", ENCODERS + DECODERS)
@pytest.mark.parametrize("kernel", ["favor", "flexformer_n"])
def test_round_trip_is_bit_identical(build, family, kernel, inputs, tmp_path):
    model = kf.convert(build(family), kernel, 16, seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
        expected = model(**inputs).last_hidden_state
    model.save_pretrained(tmp_path)
    loaded = kf.load(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).last_hidden_state, expected)
    loaded.save_pretrained(tmp_path / "again")
    # With gradients, causal attention adds in another order.
    with torch.no_grad():
        assert torch.equal(kf.load(tmp_path / "again")(**inputs).last_hidden_state, expected)


def test_loads_below_a_classification_head(build, inputs, tmp_path):
    kf.convert(build("bert"), "hedgehog", 16).save_pretrained(tmp_path)
    loaded = kf.load(tmp_path, transformers.BertForSequenceClassification)
    assert loaded(**inputs).logits.shape == (2, 2)
    assert len(kf.hf.kernels(loaded)) == 2


def test_weights_without_the_promised_kernels_are_refused(build, tmp_path):
    kf.convert(build("bert"), "hedgehog", 16).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if ".kernel." not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(kf.KernelformerError, match="promises kernels"):
        kf.load(tmp_path)


def test_a_plain_load_with_our_attention_is_refused(build, inputs, tmp_path):
    kf.convert(build("bert"), "hedgehog", 16).save_pretrained(tmp_path)
    plain = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="kernelformer")
    with pytest.raises(kf.KernelformerError, match=r"kernelformer\.load"):
        plain(**inputs)


def test_a_newer_format_is_refused(build, tmp_path):
    kf.convert(build("bert"), "hedgehog", 16).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["kernelized"]["format"] = 99
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(kf.KernelformerError, match="upgrade"):
        kf.load(tmp_path)


def test_the_first_format_still_loads(build, inputs, tmp_path):
    """Written before there were windows."""
    model = kf.convert(build("llama"), "hedgehog", 16)
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["kernelized"]["format"] = 1
    del config["kernelized"]["window"]
    path.write_text(json.dumps(config))
    with torch.no_grad():
        wanted = model(**inputs).last_hidden_state
        assert torch.equal(kf.load(tmp_path)(**inputs).last_hidden_state, wanted)


def test_a_plain_model_and_an_empty_folder_are_refused(build, tmp_path):
    with pytest.raises(kf.KernelformerError, match=r"config\.json"):
        kf.load(tmp_path)
    build("bert").save_pretrained(tmp_path)
    with pytest.raises(kf.KernelformerError, match="no kernel attention"):
        kf.load(tmp_path)


def test_bfloat16_round_trip(build, inputs, tmp_path):
    model = kf.convert(build("bert"), "hedgehog", 16).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    loaded = kf.load(tmp_path, dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


def test_a_kernel_of_ones_own_is_imported_only_when_named(build, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from kernelformer.feature_maps import Hedgehog\n\n\nclass Mine(Hedgehog):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kf.convert(build("bert"), "mine:Mine", 16).save_pretrained(tmp_path / "model")
    with pytest.raises(kf.KernelformerError, match="own_kernel=None"):
        kf.load(tmp_path / "model")
    loaded = kf.load(tmp_path / "model", own_kernel="mine:Mine")
    assert type(next(iter(kf.hf.kernels(loaded).values())).feature_map).__name__ == "Mine"
