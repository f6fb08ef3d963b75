"""A tiny converted model, and batches to fit it on."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")


@pytest.fixture
def teacher() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=40,
        initializer_range=0.3,  # queries and keys large enough for softmax to be far from uniform
    )
    return transformers.BertModel(config).eval()


@pytest.fixture
def batches() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    found = []
    for length in (10, 14, 12, 9):
        ids = torch.randint(1, 50, (4, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, length - 3 :] = 0
        found.append({"input_ids": ids, "attention_mask": mask})
    return found
