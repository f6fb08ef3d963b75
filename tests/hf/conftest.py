"""Tiny random models of every family, and the inputs they are tried on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers")

_SIZE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
}


@pytest.fixture
def build() -> Callable[[str], transformers.PreTrainedModel]:
    """A function from the name of a family to a tiny model of it."""
    return _build


def _build(family: str) -> transformers.PreTrainedModel:
    """A model of this family with random weights, the same at every call."""
    torch.manual_seed(0)
    configs: dict[str, Callable[[], transformers.PretrainedConfig]] = {
        "bert": lambda: transformers.BertConfig(**_SIZE),
        "roberta": lambda: transformers.RobertaConfig(**_SIZE),
        "distilbert": lambda: transformers.DistilBertConfig(
            vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=40
        ),
        "llama": lambda: transformers.LlamaConfig(**_SIZE, num_key_value_heads=2),
        "gpt2": lambda: transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=40),
        "qwen3": lambda: transformers.Qwen3Config(**_SIZE, num_key_value_heads=2, head_dim=8),
    }
    config = configs[family]()
    config.pad_token_id = 1
    return transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval()


@pytest.fixture
def inputs() -> dict[str, Tensor]:
    """Two rows of 12 tokens; the second has four of padding at its end."""
    ids = torch.randint(5, 99, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}
