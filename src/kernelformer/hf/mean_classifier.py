"""A classifier of transformers that pools by the mean over tokens; its own BERT classifiers read the first token."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

__all__ = ["BertForMeanClassification"]


class BertForMeanClassification(BertPreTrainedModel):
    """BERT, the mean of its last hidden state over the real tokens, dropout, a linear layer.

    Saved by ``save_pretrained``; read by ``from_pretrained`` of this class, or by ``kernelformer.load`` once it is
    converted.

    Args:
        config: ``num_labels`` says how many classes; ``classifier_dropout`` None is ``hidden_dropout_prob``.

    References:
        The classifier of Badiei Khuzani et al. 2026, arXiv 2607.23869.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels: int = len(config.id2label or {})
        self.bert = BertModel(config, add_pooling_layer=False)
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits [B, C], and with labels int64 [B] their cross-entropy.

        ``kwargs`` are transformers' own of every model, which reach the attention function.
        """
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        hidden = outputs.last_hidden_state
        if attention_mask is None:
            pooled = hidden.mean(1)
        else:
            real = attention_mask.bool()[..., None]
            # Filled, not multiplied: zero times NaN would let padding in.
            pooled = hidden.masked_fill(~real, 0.0).sum(1) / real.sum(1)
        logits = self.classifier(self.dropout(pooled))
        loss = None if labels is None else functional.cross_entropy(logits.float(), labels)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
