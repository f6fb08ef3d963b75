"""Moments are those of the real tokens' scaled queries and keys."""

from __future__ import annotations

import math

import pytest
import torch
import transformers

import kernelformer as kf
from kernelformer.hf import kernels
from kernelformer.learn import gather_moments, start_from_data


def test_moments_are_those_of_the_real_tokens(teacher, batches):
    model = kf.convert(teacher, "hedgehog", 16)
    layer = model.encoder.layer[0].attention.self
    moments = gather_moments(model, batches)[layer.kernel]
    rows = []
    for batch in batches:
        hidden = model.embeddings(batch["input_ids"])
        keys = layer.key(hidden)[batch["attention_mask"].bool()]
        rows.append(keys.view(-1, 4, 8) / math.sqrt(math.sqrt(8)))
    keys = torch.cat(rows).detach()
    torch.testing.assert_close(moments.key_mean, keys.mean(0), rtol=1e-4, atol=1e-5)
    square = torch.einsum("nhd,nhe->hde", keys, keys) / len(keys)
    torch.testing.assert_close(moments.key_square, square, rtol=1e-4, atol=1e-5)


def test_what_padding_holds_is_not_counted(teacher, batches):
    model = kf.convert(teacher, "hedgehog", 16)
    moments = list(gather_moments(model, batches).values())
    for batch in batches:
        batch["input_ids"] = torch.where(batch["attention_mask"] == 0, 7, batch["input_ids"])
    for before, after in zip(moments, gather_moments(model, batches).values(), strict=True):
        torch.testing.assert_close(after.query_square, before.query_square, rtol=1e-4, atol=1e-6)


def test_a_start_from_data_shifts_the_keys(teacher, batches):
    model = kf.convert(teacher, "hedgehog", 16)
    start_from_data(model, batches)
    assert all(kernel.feature_map.key_shift.abs().max() > 0 for kernel in kernels(model).values())


def test_no_batch_is_refused(teacher):
    with pytest.raises(kf.DataError, match="at least one batch"):
        gather_moments(kf.convert(teacher, "hedgehog", 16), [])


@pytest.mark.parametrize("factor", [0.5, 20.0])
def test_the_mixing_weight_undoes_a_constant_of_the_kernel(factor):
    """A kernel that is softmax's times a number starts with the log of its inverse; two query heads share a map."""

    class Scaled(kf.feature_maps.Favor):
        def phi_q(self, x):
            features = self.phi(x)
            return features._replace(log_scale=features.log_scale + math.log(factor))

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=2,
        intermediate_size=8, initializer_range=0.2,
    )  # fmt: skip
    model = kf.convert(transformers.LlamaModel(config).eval(), "favor", 4096, window=3)
    (kernel,) = kf.hf.kernels(model).values()
    kernel.feature_map = Scaled(2, 2, 4096)
    ids = torch.randint(50, (3, 20), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    start_from_data(model, [{"input_ids": ids, "attention_mask": mask}])
    torch.testing.assert_close(kernel.log_mix.detach(), torch.full((2,), -math.log(factor)), rtol=0, atol=0.05)
