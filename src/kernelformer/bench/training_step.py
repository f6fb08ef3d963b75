"""One training step of an encoder on long texts, as plain data, so that another process can build it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from transformers import BertConfig

from kernelformer.bench.clock import Call
from kernelformer.bench.spec import draw_tokens
from kernelformer.feature_maps import width_for
from kernelformer.hf import BertForMeanClassification, convert
from kernelformer.hf.fresh import fresh_weights

__all__ = ["SOFTMAX", "TrainingStep"]

SOFTMAX: Final = {"softmax (eager)": "eager", "softmax (SDPA)": "sdpa"}
"""Name of a row -> transformers' name of the attention: all N x N weights in memory, or PyTorch's fused form."""

_BYTES: Final = 256


@dataclass(frozen=True)
class TrainingStep:
    """Forward, backward and AdamW of a BERT-like classifier with mean pooling, on one text of bytes without padding.

    Heads are as wide as in the Flexformer paper's retrieval (64), layers, heads and feed-forward width those of the
    Long Range Arena's. Weights of softmax are not dropped out, which would take SDPA's fused form away.

    Attributes:
        method: a name of ``SOFTMAX``, or of ``FEATURE_MAPS``.
        num_features: M, twice the head's width as in the paper, for maps of a free width.
    """

    method: str
    num_features: int = 128
    num_layers: int = 4
    num_heads: int = 4
    head_dim: int = 64
    feed_forward: int = 512
    seed: int = 0

    def prepare(self, length: int) -> Call:
        """A call that makes one step, the loss of which it returns."""
        model = self._model(length)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        ids = draw_tokens(_BYTES, length, self.seed)
        labels = torch.tensor([1])

        @torch.enable_grad()
        def step() -> float:
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            return float(loss.detach())

        return step

    def _model(self, length: int) -> BertForMeanClassification:
        config = BertConfig(
            vocab_size=_BYTES,
            hidden_size=self.num_heads * self.head_dim,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            intermediate_size=self.feed_forward,
            max_position_embeddings=length,
            attention_probs_dropout_prob=0.0,
        )
        with fresh_weights(self.seed):
            model = BertForMeanClassification(config)
        if self.method in SOFTMAX:
            model.set_attn_implementation(SOFTMAX[self.method])
        else:
            width = width_for(self.method, self.num_features)
            convert(model, self.method, width, seed=self.seed)
        model.train()
        return model
