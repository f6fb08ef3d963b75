"""Layers with a sliding window stay softmax beside converted ones; capped scores are the teacher's, too."""

from __future__ import annotations

import pytest
import torch
import transformers

import kernelformer as kf
from families import tiny_config
from kernelformer.learn import OutputError


def _plain(name, **options):
    torch.manual_seed(0)
    config = tiny_config(name, positions=64, spread=0.3, **options)
    # SDPA would leave the cap out.
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


@pytest.fixture
def ids():
    return torch.randint(5, 99, (2, 20), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("padded", [False, True], ids=["all", "padded"])
@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
@torch.no_grad()
def test_the_teacher_within_is_the_model_as_it_was(family, padded, ids):
    """With an objective, layers hand on softmax outputs: windows, caps and scales are those of the original."""
    options = {"attn_logit_softcapping": 2.0} if family == "gemma2" else {}
    mask = torch.ones_like(ids)
    mask[1, 15:] = int(not padded)
    wanted = _plain(family, **options)(ids, attention_mask=mask, use_cache=False).logits
    model = kf.convert(_plain(family, **options), "hedgehog", 16)
    outputs = model(ids, attention_mask=mask, use_cache=False, layer_objective=OutputError(), output_attentions=True)
    torch.testing.assert_close(outputs.logits[mask == 1], wanted[mask == 1], rtol=1e-4, atol=1e-4)
    student = model(ids, attention_mask=mask, use_cache=False).logits
    assert (student - wanted)[mask == 1].abs().max() > 1e-2


def test_only_full_layers_are_converted(ids):
    model = kf.convert(_plain("gemma3"), "hedgehog", 16)
    assert [layer["converted"] for layer in model.config.kernelized["layers"]] == [False, True]
    with pytest.raises(kf.UnsupportedModelError, match="linear already"):
        kf.convert(_plain("gemma3"), "hedgehog", 16, layers=[0])
    with pytest.raises(kf.UnsupportedModelError, match="every attention layer"):
        kf.convert(_plain("gemma3", layer_types=["sliding_attention"] * 2), "hedgehog", 16)


def test_a_window_of_ours_has_no_cap():
    with pytest.raises(kf.UnsupportedModelError, match="softcap"):
        kf.convert(_plain("gemma2", attn_logit_softcapping=5.0), "hedgehog", 16, window=4)
