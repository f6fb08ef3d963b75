"""Configs of tiny models, one for every family of decoders that is converted, and some encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers

ENCODERS = ("bert", "roberta", "distilbert")
DECODERS = ("llama", "gpt2", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "gpt_neox", "opt")


def tiny_config(family: str, positions: int, spread: float = 0.02, **options: Any) -> transformers.PretrainedConfig:
    """Two layers of width 32 with four heads of width 8; of Gemma 2 and 3, the first layer has a sliding window of 6.

    Args:
        spread: standard deviation of the random weights; at 0.3 a model does not say one word for ever.
        options: of the family's config, in the place of what stands here.
    """
    size = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    size |= {"max_position_embeddings": positions}
    common = {**size, "intermediate_size": 37, "initializer_range": spread}
    grouped = {**common, "num_key_value_heads": 2, "head_dim": 8}
    layers = ["sliding_attention", "full_attention"]
    sliding = {**grouped, "sliding_window": 6, "query_pre_attn_scalar": 16, "layer_types": layers}
    made: dict[str, tuple[Callable[..., transformers.PretrainedConfig], dict[str, Any]]] = {
        "bert": (transformers.BertConfig, common),
        "roberta": (transformers.RobertaConfig, common),
        "distilbert": (
            transformers.DistilBertConfig,
            {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37,
             "max_position_embeddings": positions, "initializer_range": spread},
        ),
        "llama": (transformers.LlamaConfig, grouped),
        "gpt2": (
            transformers.GPT2Config,
            {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": positions,
             "initializer_range": spread},
        ),
        "qwen2": (transformers.Qwen2Config, {**common, "num_key_value_heads": 2}),
        "qwen3": (transformers.Qwen3Config, grouped),
        "mistral": (transformers.MistralConfig, {**grouped, "sliding_window": None}),
        "gemma": (transformers.GemmaConfig, grouped),
        "gemma2": (transformers.Gemma2Config, {**sliding, "attn_logit_softcapping": 5.0}),
        "gemma3": (transformers.Gemma3TextConfig, sliding),
        "gpt_neox": (transformers.GPTNeoXConfig, common),
        "opt": (transformers.OPTConfig, {**size, "ffn_dim": 37, "word_embed_proj_dim": 32, "init_std": spread}),
    }  # fmt: skip
    kind, arguments = made[family]
    config = kind(**{**arguments, **options})
    config.pad_token_id = 1
    return config
