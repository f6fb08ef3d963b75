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
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
_SLIDING = {
    "sliding_window": 6,
    "query_pre_attn_scalar": 16,
    "layer_types": ["sliding_attention", "full_attention"],
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
        "qwen2": lambda: transformers.Qwen2Config(**_SIZE, num_key_value_heads=2),
        "qwen3": lambda: transformers.Qwen3Config(**_SIZE, **_GROUPED),
        "mistral": lambda: transformers.MistralConfig(**_SIZE, **_GROUPED, sliding_window=None),
        "gemma": lambda: transformers.GemmaConfig(**_SIZE, **_GROUPED),
        "gemma2": lambda: transformers.Gemma2Config(**_SIZE, **_GROUPED, **_SLIDING, attn_logit_softcapping=5.0),
        "gemma3": lambda: transformers.Gemma3TextConfig(**_SIZE, **_GROUPED, **_SLIDING),
        "gpt_neox": lambda: transformers.GPTNeoXConfig(**_SIZE),
        "opt": lambda: transformers.OPTConfig(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=37,
            max_position_embeddings=40, word_embed_proj_dim=32,
        ),
    }  # fmt: skip
    config = configs[family]()
    config.pad_token_id = 1
    return transformers.AutoModel.from_config(config).eval()


@pytest.fixture
def inputs() -> dict[str, Tensor]:
    """Two rows of 12 tokens; the second has four of padding at its end."""
    ids = torch.randint(5, 99, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}
