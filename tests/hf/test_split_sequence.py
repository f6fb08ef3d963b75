"""A converted model in many processes, each with a slice of the tokens, is the model in one."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf

pytest.importorskip("transformers")

SCRIPT = """
import copy, transformers
import kernelformer as kf

size = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
            max_position_embeddings=64)
configs = [transformers.BertConfig(**size), transformers.LlamaConfig(**size, num_key_value_heads=2),
           transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)]
ids = torch.randint(5, 99, (2, 40), generator=torch.Generator().manual_seed(1))
mask = torch.ones_like(ids)
mask[1, 24:] = 0
# The second process holds padding alone in the second row.
mine = [slice(0, 24), slice(24, 40)][rank]
places = torch.arange(40)[None].expand(2, -1)
for config in configs:
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    kf.convert(model, "hedgehog", 8, seed=1)
    for name, rows in (("padded", mask), ("no mask", None)):
        def loss(part):
            cached = {} if isinstance(config, transformers.BertConfig) else {"use_cache": False}
            given = None if rows is None else rows[:, part]
            out = model(input_ids=ids[:, part], attention_mask=given, position_ids=places[:, part], **cached)[0]
            out = out if given is None else out * given[..., None]
            return out, (out ** 2 / 40).sum()
        model.zero_grad()
        kf.split_sequence(model, None)
        whole, total = loss(slice(0, 40))
        total.backward()
        expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        kf.split_sequence(model, dist.group.WORLD)
        out, total = loss(mine)
        total.backward()
        errors = [float((out - whole[:, mine]).abs().max())]
        for n, p in model.named_parameters():
            if n in expected:
                dist.all_reduce(p.grad)
                errors.append(float((p.grad - expected[n]).abs().max()))
        found[f"{config.model_type} {name}"] = max(errors)
"""


def test_two_processes_are_one(run_ranks):
    """Outputs and the gradient of every weight."""
    for found in run_ranks(SCRIPT, 2):
        assert len(found) == 6
        assert max(found.values()) < 1e-5, found


def test_a_model_with_softmax_left_is_refused(build):
    model = kf.convert(build("bert"), "hedgehog", 8, layers=[0])
    with pytest.raises(kf.UnsupportedModelError, match="softmax"):
        kf.split_sequence(model, torch.nn.Module())
    assert kf.split_sequence(model, None) is model


def test_an_unconverted_model_is_refused(build):
    with pytest.raises(kf.KernelformerError, match="convert it first"):
        kf.split_sequence(build("bert"), None)


def test_a_cache_is_refused(build, inputs):
    model = kf.convert(build("llama"), "hedgehog", 8)
    kf.split_sequence(model, torch.nn.Module())
    with pytest.raises(kf.KernelformerError, match="use_cache=False"):
        model(**inputs)
