"""Moments are those of the real tokens' scaled queries and keys."""

from __future__ import annotations

import math

import pytest
import torch

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
