"""Texts with classes: batches with labels, and what a classifier says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.batches import LengthBatches, StepBatches, TokenisedTexts

__all__ = ["LabelledBatches", "class_names", "class_numbers", "predict_probabilities"]


class LabelledBatches(Sequence[Mapping[str, Tensor]]):
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
        self.inputs = StepBatches(tokens, tokenizer, batch_size, steps=steps, seed=seed)
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        return {**self.inputs[index], "labels": self.labels[self.inputs.rows[index]]}


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
    collate = DataCollatorWithPadding(tokenizer)
    found: list[Tensor] = [torch.empty(0)] * len(tokens)
    was_training = model.training
    model.eval()
    try:
        for rows in LengthBatches(tokens.lengths, batch_size, seed=0, shuffle=False):
            batch = {name: part.to(model.device) for name, part in collate([tokens[row] for row in rows]).items()}
            for row, logits in zip(rows, model(**batch).logits.double().cpu(), strict=True):
                found[row] = logits
    finally:
        model.train(was_training)
    probabilities: NDArray[np.float64] = torch.stack(found).softmax(-1).numpy()
    if not np.isfinite(probabilities).all():
        raise KernelformerError("the classifier's outputs are not finite; it has diverged: train it more slowly")
    return probabilities
