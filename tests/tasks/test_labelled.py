"""Texts with classes: each batch has its own labels, and predictions come in the order of the texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig

import kernelformer as kf
from kernelformer.hf import BertForMeanClassification
from kernelformer.tasks.batches import tokenise
from kernelformer.tasks.labelled import LabelledBatches, class_names, class_numbers, predict_probabilities

TEXTS = ["good film", "bad", "a good bright film is good", "dull plot", "the", "bad bad film is dull"]


def test_labels_go_with_their_texts(tokenizer):
    """The label of each text is the number of its tokens."""
    tokens = tokenise(tokenizer, TEXTS, 16)
    batches = LabelledBatches(tokens, tokens.lengths, tokenizer, 2, steps=7, seed=3)
    assert len(batches) == 7
    for batch in batches[:]:
        assert torch.equal(batch["attention_mask"].sum(1), batch["labels"])
    assert sorted(label for batch in batches[:3] for label in batch["labels"].tolist()) == sorted(tokens.lengths)


def test_probabilities_come_in_order_and_leave_the_model_as_it_was(tokenizer):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    model = BertForMeanClassification(config).train()
    tokens = tokenise(tokenizer, TEXTS, 16)
    found = predict_probabilities(model, tokens, tokenizer, batch_size=4)
    assert model.training
    alone = [predict_probabilities(model, tokenise(tokenizer, [text], 16), tokenizer)[0] for text in TEXTS]
    np.testing.assert_allclose(found, alone, rtol=1e-5)
    np.testing.assert_allclose(found.sum(1), 1.0)
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(kf.KernelformerError, match="diverged"):
        predict_probabilities(model, tokens, tokenizer)


def test_classes_and_refusals(tokenizer):
    assert class_names(["b", "a", "b"]) == ["a", "b"]
    assert class_numbers(["b", "a"], ["a", "b"]) == [1, 0]
    with pytest.raises(kf.DataError, match="at least two"):
        class_names(["a", "a"])
    with pytest.raises(kf.DataError, match="'c' is not among"):
        class_numbers(["c"], ["a", "b"])
    with pytest.raises(kf.KernelformerError, match="each text needs a label"):
        LabelledBatches(tokenise(tokenizer, TEXTS, 16), [0], tokenizer, 2, steps=1, seed=0)
