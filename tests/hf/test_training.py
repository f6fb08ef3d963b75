"""Converted decoders in transformers' own Trainer: what saves memory changes no result."""

from __future__ import annotations

import pytest
import torch
import transformers

import kernelformer as kf


def _trained(tmp_path, window=0, **arguments):
    """Losses and weights after four optimiser steps on 16 rows each."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=37, initializer_range=0.3,
    )  # fmt: skip
    model = kf.convert(transformers.LlamaForCausalLM(config), "hedgehog", 8, window=window)
    ids = torch.randint(99, (64, 20), generator=torch.Generator().manual_seed(1))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, learning_rate=1e-2, use_cpu=True, report_to=[], save_strategy="no",
        logging_steps=1, disable_tqdm=True, seed=3, max_grad_norm=0.0, **arguments,
    )  # fmt: skip
    trainer = transformers.Trainer(model, settings, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return torch.tensor(losses), torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize(
    "saving",
    [
        {"per_device_train_batch_size": 16, "gradient_checkpointing": True},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "gradient_checkpointing": True},
    ],
    ids=["checkpointing", "accumulation", "both"],
)
def test_what_saves_memory_changes_no_result(tmp_path, window, saving):
    losses, weights = _trained(tmp_path, window, per_device_train_batch_size=16)
    assert losses[-1] < losses[0]
    found_losses, found_weights = _trained(tmp_path, window, **saving)
    torch.testing.assert_close(found_losses, losses, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found_weights, weights, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("window", [0, 4])
def test_bfloat16_stays_near_float32(tmp_path, window):
    losses, _ = _trained(tmp_path, window, per_device_train_batch_size=16)
    found, _ = _trained(tmp_path, window, per_device_train_batch_size=16, bf16=True, gradient_checkpointing=True)
    torch.testing.assert_close(found, losses, rtol=3e-2, atol=3e-2)
    assert not torch.equal(found, losses)
