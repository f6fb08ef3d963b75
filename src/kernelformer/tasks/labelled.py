"""Texts with classes: batches with labels, and what a classifier says of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.batches import BatchPerStep, LengthBatches, TokenisedTexts, evaluating, padded

__all__ = ["LabelledBatches", "class_names", "class_numbers", "predict_probabilities"]


class LabelledBatches(BatchPerStep):
    """``StepBatches`` with "labels", int64 [B]: one a step, epoch after epoch, seeded.

    Args:
        labels: a class number a text.
    """

    def __init__(
        self,
        tokens: TokenisedTexts,
        labels: Sequence[int],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int,
        *,
        steps: int,
        seed: int,
    ) -> None:
        if len(tokens) != len(labels):
            raise KernelformerError(f"each text needs a label, got {len(labels)} for {len(tokens)} texts")
        super().__init__(tokens.lengths, batch_size, steps=steps, seed=seed)
        self.tokens = tokens
        self.labels = torch.tensor(labels)
        self.collate = DataCollatorWithPadding(tokenizer)

    def make(self, rows: list[int]) -> dict[str, Tensor]:
        """Input ids and mask, [B, N], N the longest text, and labels."""
        return {**self.collate([self.tokens[row] for row in rows]), "labels": self.labels[rows]}


def class_names(labels: Sequence[str]) -> list[str]:
    """The classes, sorted by name.

    Raises:
        DataError: fewer than two.
    """
    names = sorted(set(labels))
    if len(names) < 2:
        raise DataError(f"a classifier needs texts of at least two labels, there are: {', '.join(names) or 'none'}")
    return names


def class_numbers(labels: Sequence[str], names: Sequence[str]) -> list[int]:
    """The place of each label in ``names``.

    Raises:
        DataError: a label that is not among them.
    """
    places = {name: place for place, name in enumerate(names)}
    unknown = sorted(set(labels) - places.keys())
    if unknown:
        raise DataError(f"the label {unknown[0]!r} is not among those of the training texts: {', '.join(names)}")
    return [places[label] for label in labels]


@torch.no_grad()
def predict_probabilities(
    model: PreTrainedModel, tokens: TokenisedTexts, tokenizer: PreTrainedTokenizerBase, batch_size: int = 64
) -> NDArray[np.float64]:
    """Class probabilities of a classifier, [n, C], in the order of the texts; in evaluation mode.

    Raises:
        KernelformerError: a probability is not finite.
    """
    found: list[Tensor] = [torch.empty(0)] * len(tokens)
    order = LengthBatches(tokens.lengths, batch_size, seed=0, shuffle=False)
    with evaluating(model):
        for rows, batch in padded(model, tokens, tokenizer, order):
            for row, logits in zip(rows, model(**batch).logits.double().cpu(), strict=True):
                found[row] = logits
    probabilities: NDArray[np.float64] = torch.stack(found).softmax(-1).numpy()
    if not np.isfinite(probabilities).all():
        raise KernelformerError("the classifier's outputs are not finite; it has diverged: train it more slowly")
    return probabilities
