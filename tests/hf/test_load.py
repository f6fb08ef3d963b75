"""A saved model comes back bit-identical, or not at all."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import kernelformer as kf
from families import DECODERS, ENCODERS

# A number behind the slash is the window of hybrid attention.
FAMILIES = (*ENCODERS, *DECODERS, "llama/4", "gpt2/4")
STORAGE = ("whole", "sharded", "bfloat16", "device_map")


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ["favor", "flexformer_n"])
def test_round_trip_is_bit_identical(build, family, kernel, storage, inputs, tmp_path):
    name, _, window = family.partition("/")
    model = kf.convert(build(name), kernel, 16, seed=3, window=int(window or 0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
        if storage == "bfloat16":
            # Not .to(), which would cast the frequencies of rotary positions, too.
            model.save_pretrained(tmp_path / "float32")
            model = kf.load(tmp_path / "float32", dtype=torch.bfloat16)
        expected = model(**inputs).last_hidden_state
    model.save_pretrained(tmp_path, max_shard_size=10_000 if storage == "sharded" else "5GB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (storage == "sharded")
    loaded = kf.load(tmp_path, device_map="cpu" if storage == "device_map" else None)
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
