"""A classifier of pairs of texts by two towers of one encoder; transformers' own read both texts at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

__all__ = ["BertForMeanPairs"]


class BertForMeanPairs(BertPreTrainedModel):
    """BERT on each text of a pair alone; a and b, the means of its last hidden states over real tokens; an MLP on
    [a, b, ab, a - b].

    Args:
        config: ``num_labels`` says how many classes.

    References:
        Tay et al. 2021, arXiv 2011.04006, document retrieval.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.hidden = nn.Linear(4 * config.hidden_size, config.intermediate_size)
        self.classifier = nn.Linear(config.intermediate_size, len(config.id2label or {}))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any
    ) -> SequenceClassifierOutput:
        """Logits [B, C] of ids [B, 2, N], and with labels int64 [B] their cross-entropy.

        ``kwargs`` are transformers' own of every model, which reach the attention function.
        """
        ids = input_ids.flatten(0, 1)
        mask = torch.ones_like(ids) if attention_mask is None else attention_mask.flatten(0, 1)
        hidden = self.bert(ids, attention_mask=mask, **kwargs).last_hidden_state
        real = mask.bool()[..., None]
        # Filled, not multiplied: zero times NaN would let padding in.
        a, b = (hidden.masked_fill(~real, 0.0).sum(1) / real.sum(1)).unflatten(0, (-1, 2)).unbind(1)
        pair = torch.cat([a, b, a * b, a - b], dim=-1)
        logits = self.classifier(self.dropout(functional.gelu(self.hidden(pair))))
        loss = None if labels is None else functional.cross_entropy(logits.float(), labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
