"""Tokens at a context that was never computed."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")

import kernelformer as kf  # noqa: E402
from kernelformer.bench.decoding import decoding_markdown, decoding_plots, measure_decoding  # noqa: E402
from kernelformer.hf.cache import KernelStateLayer  # noqa: E402


def _teacher():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=37, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("window", [0, 16])
def test_the_cache_of_softmax_grows_and_the_state_does_not(window, kept):
    rows = measure_decoding(_teacher(), "hedgehog", 8, window, rows=kept, contexts=(32, 320), seconds=0.05)
    short, long = rows
    # Two layers of keys and values, 2 heads of width 8, float32.
    assert short["softmax_mib"] == 2 * 2 * 2 * 8 * 4 * 32 / 2**20
    assert long["softmax_mib"] == 10 * short["softmax_mib"]
    assert long["kernel_mib"] == short["kernel_mib"]
    assert min(row[name] for row in rows for name in ("softmax_ms", "kernel_ms")) > 0
    assert "| 320 |" in decoding_markdown(rows)
    assert set(decoding_plots(rows)) == {"time", "memory"}


def test_positions_of_a_told_state_go_on_from_there():
    """The next token sits at the position that was told: rotary angles, and so its output, differ."""
    model = kf.convert(_teacher(), "hedgehog", 8)
    outs = []
    for told in (8, 30):
        cache = transformers.DynamicCache()
        with torch.no_grad():
            model(torch.full((1, 8), 5), past_key_values=cache, use_cache=True)
            for layer in cache.layers:
                assert isinstance(layer, KernelStateLayer)
                layer.tell_seen(told)
            assert cache.get_seq_length() == told
            outs.append(model(torch.full((1, 1), 7), past_key_values=cache, use_cache=True).logits)
    assert not torch.equal(*outs)


def test_a_context_beyond_the_positions_is_refused(kept):
    config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=4, n_positions=64)
    with pytest.raises(kf.KernelformerError, match="64 positions"):
        measure_decoding(transformers.GPT2LMHeadModel(config).eval(), "elu", 8, rows=kept, contexts=(100,))
