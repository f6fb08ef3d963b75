"""A converted decoder generates through transformers' own ``generate``, with a state of fixed size."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from transformers import DynamicCache

import kernelformer as kf
from families import DECODERS, tiny_config
from kernelformer.hf.cache import KernelStateLayer

# A number behind the slash is the window of hybrid attention.
SLIDING = ("gemma2", "gemma3")
FAMILIES = (*DECODERS, "llama/4", "gpt_neox/20")
THREE = ("llama", "gpt2", "qwen3", "gpt2/4", "qwen3/20")


def _plain(family):
    torch.manual_seed(0)
    config = tiny_config(family.split("/")[0], positions=200, spread=0.3)
    config.bos_token_id, config.eos_token_id = 2, None
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def _model(family="llama", layers=None, kernel="hedgehog"):
    window = int(family.partition("/")[2] or 0)
    return kf.convert(_plain(family), kernel, None if kernel == "softmax" else 16, layers, window=window)


@pytest.fixture
def ids():
    """Three rows of 11 tokens."""
    return torch.randint(5, 99, (3, 11), generator=torch.Generator().manual_seed(1))


def _generate(model, ids, **arguments):
    arguments = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 1, **arguments}
    arguments.setdefault("attention_mask", torch.ones_like(ids))
    return model.generate(ids, **arguments)


def _logits(model, ids, **arguments):
    with torch.no_grad():
        return model(ids, **arguments).logits


def _run(model, ids, cache=None, **arguments):
    """Logits and the cache after these tokens."""
    with torch.no_grad():
        outputs = model(ids, past_key_values=DynamicCache() if cache is None else cache, use_cache=True, **arguments)
    return outputs.logits, outputs.past_key_values


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generation_without_a_cache(family, ids):
    model = _model(family)
    expected = _generate(model, ids, use_cache=False)
    assert len(expected[:, 11:].unique()) > 3
    assert torch.equal(_generate(model, ids), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_beam_search_equals_search_without_a_cache(family, ids):
    model = _model(family)
    expected = _generate(model, ids, num_beams=4, use_cache=False)
    assert torch.equal(_generate(model, ids, num_beams=4), expected)


def test_beam_search_needs_the_order_of_the_beams(ids, monkeypatch):
    """The control: the test above notices a state whose rows stay where they are."""
    model = _model()
    expected = _generate(model, ids, num_beams=4, use_cache=False)
    monkeypatch.setattr(KernelStateLayer, "reorder_cache", lambda self, beam_idx: None)
    assert not torch.equal(_generate(model, ids, num_beams=4), expected)


@pytest.mark.parametrize("family", THREE)
def test_sampling_equals_sampling_without_a_cache(family, ids):
    model = _model(family)
    torch.manual_seed(3)
    expected = _generate(model, ids, do_sample=True, num_return_sequences=2, use_cache=False)
    torch.manual_seed(3)
    sampled = _generate(model, ids, do_sample=True, num_return_sequences=2)
    assert sampled.shape == (6, 23)
    assert torch.equal(sampled, expected)
    assert not torch.equal(sampled[0], sampled[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_left_padded_batch_equals_its_rows_alone(family, ids):
    model = _model(family)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    batch = _generate(model, ids.masked_fill(mask == 0, 1), attention_mask=mask)
    assert torch.equal(batch[1, 4:], _generate(model, ids[1:2, 4:])[0])
    assert torch.equal(batch[0], _generate(model, ids[:1])[0])


@pytest.mark.parametrize("layers", [None, [0], [1]])
@pytest.mark.parametrize("family", THREE)
def test_prefill_in_chunks_equals_one_prefill(family, layers, ids):
    model = _model(family, layers)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    for attention_mask in (torch.ones_like(ids), mask):
        padded = ids.masked_fill(attention_mask == 0, 1)
        expected = _generate(model, padded, attention_mask=attention_mask, use_cache=False)
        chunked = _generate(model, padded, attention_mask=attention_mask, prefill_chunk_size=4)
        assert torch.equal(chunked, expected)


@pytest.mark.parametrize("layers", [None, [0], [1]])
@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_equal_the_whole(family, layers, ids):
    if layers == [0] and family in SLIDING:
        pytest.skip("the first layer has a sliding window")
    model = _model(family, layers)
    whole = _logits(model, ids, use_cache=False)
    first, cache = _run(model, ids[:, :5])
    second, cache = _run(model, ids[:, 5:9], cache)
    third, cache = _run(model, ids[:, 9:10], cache)
    fourth, cache = _run(model, ids[:, 10:], cache)
    torch.testing.assert_close(torch.cat([first, second, third, fourth], 1), whole, rtol=1e-4, atol=1e-4)
    assert cache.get_seq_length() == 11
    kinds = [type(layer).__name__ for layer in cache.layers]
    converted = [layer["converted"] for layer in model.config.kernelized["layers"]]
    assert kinds == ["KernelStateLayer" if ours else "DynamicLayer" for ours in converted]


@pytest.mark.parametrize("layers", [[0], [1]])
def test_a_partly_converted_model_generates(layers, ids):
    model = _model(layers=layers)
    for arguments in ({}, {"num_beams": 3}):
        assert torch.equal(_generate(model, ids, **arguments), _generate(model, ids, use_cache=False, **arguments))


@pytest.mark.parametrize("family", THREE)
def test_generation_goes_on_from_the_cache_it_returned(family, ids):
    model = _model(family)
    whole = _generate(model, ids)
    begun = _generate(model, ids, max_new_tokens=5, return_dict_in_generate=True)
    cache = begun.past_key_values
    assert torch.equal(_generate(model, begun.sequences, max_new_tokens=7, past_key_values=cache), whole)


def test_a_prefix_serves_many_continuations(ids):
    model = _model()
    _, prefix = _run(model, ids[:1, :6])
    kept = [x.clone() for x in prefix.layers[0].state]
    for end in range(7, 11):
        generated = _generate(model, ids[:1, :end], past_key_values=copy.deepcopy(prefix))
        assert torch.equal(generated, _generate(model, ids[:1, :end], use_cache=False))
    assert all(torch.equal(a, b) for a, b in zip(kept, prefix.layers[0].state, strict=True))


def test_a_static_cache(ids):
    model = _model()
    assert torch.equal(_generate(model, ids, cache_implementation="static"), _generate(model, ids, use_cache=False))
    with pytest.raises(kf.KernelformerError, match="static cache"):
        _generate(_model(layers=[0]), ids, cache_implementation="static")


def test_exact_softmax_keeps_keys_and_values(ids):
    model = _model(kernel="softmax")
    assert torch.equal(_generate(model, ids, prefill_chunk_size=4), _generate(_plain("llama"), ids))


def test_the_state_does_not_grow(ids):
    model = _model()
    _, cache = _run(model, ids)
    before = [layer.nbytes for layer in cache.layers]
    # H (M (Dv + 1) + 2) float32 numbers a row, and the length: for 3 rows, 2 heads, M = 16, Dv = 8.
    assert before == [4 * 3 * 2 * (16 * 9 + 2) + 8] * 2
    _, cache = _run(model, ids.repeat(1, 12), cache)
    assert [layer.nbytes for layer in cache.layers] == before
    assert cache.get_seq_length() == 11 * 13


def test_a_hybrid_state_stops_growing_at_its_window(ids):
    model = _model("llama/20")
    sizes = []
    cache = None
    for _ in range(4):
        _, cache = _run(model, ids, cache)
        sizes.append([layer.nbytes for layer in cache.layers])
    # As above, and window · H · (D + Dv) numbers and window bytes of mask a row.
    assert sizes[1] == sizes[2] == sizes[3] == [4 * 3 * 2 * (16 * 9 + 2) + 8 + 3 * 20 * (4 * 2 * 16 + 1)] * 2
    assert sizes[0] < sizes[1]


def test_a_bfloat16_model_keeps_a_float32_state(ids):
    model = _model().to(torch.bfloat16)
    logits, cache = _run(model, ids)
    assert logits.dtype == torch.bfloat16
    assert {x.dtype for layer in cache.layers for x in layer.state[:4]} == {torch.float32}
    assert _generate(model, ids).shape == (3, 23)


def test_what_would_take_tokens_back_is_refused(ids):
    model = _model()
    # Newer versions of transformers ask before; older ones are stopped by the cache.
    refused = "cache that can be cropped|no token can be taken back"
    with pytest.raises(ValueError, match=refused):
        _generate(model, ids[:1], prompt_lookup_num_tokens=2)
    with pytest.raises(ValueError, match=refused):
        _generate(model, ids[:1], assistant_model=_plain("llama"))
    _, cache = _run(model, ids)
    with pytest.raises(kf.KernelformerError, match="assisted decoding"):
        cache.crop(-1)
    assert not getattr(cache, "is_croppable", False)  # older versions of transformers do not ask
    cache.crop(0)
    assert cache.get_seq_length() == 11


def test_a_cache_belongs_to_the_model_that_filled_it(ids):
    model, plain = _model(), _plain("llama")
    _, state = _run(model, ids)
    with pytest.raises(kf.KernelformerError, match="attention that asks is softmax"):
        _run(plain, ids, state)
    _, keys = _run(plain, ids)
    with pytest.raises(kf.KernelformerError, match="keys and values of softmax"):
        _run(model, ids, keys)


def test_another_attention_leaves_the_cache_alone(ids):
    model = _model()
    model.set_attn_implementation("sdpa")
    assert torch.equal(_generate(model, ids), _generate(_plain("llama"), ids))


@pytest.mark.parametrize("family", ["llama", "llama/4"])
def test_rows_are_repeated_selected_and_forgotten(family, ids):
    model = _model(family)
    expected = _logits(model, ids, use_cache=False)[:, 6:]
    _, cache = _run(model, ids[:, :6])
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([4, 1]))
    logits, cache = _run(model, ids[[2, 0], 6:], cache)
    torch.testing.assert_close(logits, expected[[2, 0]], rtol=1e-4, atol=1e-4)
    cache.reset()
    assert cache.get_seq_length() == 0
    assert torch.equal(_run(model, ids, cache)[0], _run(model, ids)[0])


@pytest.mark.parametrize("family", ["llama", "llama/4"])
def test_copies_and_loaded_models_keep_a_state(family, ids, tmp_path):
    model = _model(family)
    expected = _generate(model, ids)
    model.save_pretrained(tmp_path)
    for other in (copy.deepcopy(model), kf.load(tmp_path)):
        assert torch.equal(_generate(other, ids), expected)
        _, cache = _run(other, ids)
        assert [type(layer) for layer in cache.layers] == [KernelStateLayer] * 2
        # One hook a layer: a second one would count every token twice.
        assert cache.get_seq_length() == 11


@pytest.mark.parametrize("family", THREE)
def test_gradients_through_the_cache_are_those_of_the_whole(family, ids):
    model = _model(family).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0

    def gradients(*logits):
        model.zero_grad()
        torch.cat(logits, 1).square().mean().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients(model(ids, use_cache=False).logits)
    default = gradients(model(ids).logits)
    first = model(ids[:, :6], use_cache=True)
    pieces = gradients(first.logits, model(ids[:, 6:], past_key_values=first.past_key_values).logits)
    for found in (default, pieces):
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5 + 1e-4 * gradient.abs().max().item())


def test_no_graph_where_no_gradient_is_needed(ids):
    model = _model()
    prompted = model(ids, use_cache=True)
    assert prompted.past_key_values.layers[0].state.kv.requires_grad
    _, cache = _run(model, ids, prompted.past_key_values)
    assert not any(x.requires_grad for layer in cache.layers for x in layer.state)
    frozen = _model().requires_grad_(False)
    cache = frozen(ids, use_cache=True).past_key_values
    assert not any(x.requires_grad for layer in cache.layers for x in layer.state)


def test_a_layer_objective_leaves_the_cache_to_softmax(ids):
    model = _model()

    def objective(call):
        out = call.kernel(call.q, call.k, call.v, call.key_mask, call.scale)
        return (out.detach() - call.softmax).square().mean()

    outputs = model(ids, layer_objective=objective, output_attentions=True)
    torch.testing.assert_close(outputs.logits, _logits(_plain("llama"), ids), rtol=1e-5, atol=1e-5)


def test_a_streamer_sees_every_token(ids):
    seen = []

    class Streamer(transformers.generation.streamers.BaseStreamer):
        def put(self, value):
            seen.append(value.flatten())

        def end(self):
            pass

    model = _model()
    generated = _generate(model, ids[:1], streamer=Streamer())
    assert torch.equal(torch.cat(seen), generated[0])
