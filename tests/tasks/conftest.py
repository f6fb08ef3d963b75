"""A tiny random encoder and its tokenizer, made on the spot."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer, PreTrainedTokenizerBase

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "plot", "is", "dull", "bright")


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    return BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)})


@pytest.fixture(scope="session")
def model() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    return BertModel(config).eval()
