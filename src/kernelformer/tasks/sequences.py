"""Sequences of small numbers with classes (bytes, pixels, symbols): batches, and how many are classified right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kernelformer.tasks.batches import BatchPerStep, evaluating

__all__ = ["SequenceBatches", "SequenceTask", "Sequences", "accuracy"]


class Sequences(NamedTuple):
    """inputs: token ids of each, 1 and above, 0 pads; labels: a class each.

    For two towers an input is a pair of such sequences, [[...], [...]].
    """

    inputs: list[list[Any]]
    labels: list[int]

    def first(self, most: int | None) -> Sequences:
        """The first ones, at most ``most``; None is all."""
        return Sequences(self.inputs[:most], self.labels[:most])


class SequenceTask(NamedTuple):
    """A classification task; ``vocabulary`` counts token ids, the padding's among them."""

    train: Sequences
    validation: Sequences
    test: Sequences
    vocabulary: int
    classes: int
    max_length: int

    @classmethod
    def of(cls, parts: Iterable[Sequences], *, vocabulary: int, classes: int, max_length: int) -> SequenceTask:
        """A task of three parts: train, validation, test."""
        train, validation, test = parts
        return cls(train, validation, test, vocabulary, classes, max_length)

    def majority(self) -> float:
        """Accuracy on the test sequences of the class that is most frequent in training."""
        (commonest, _), *_ = Counter(self.train.labels).most_common(1)
        return self.test.labels.count(commonest) / len(self.test.labels)


class SequenceBatches(BatchPerStep):
    """{"input_ids", "attention_mask" int64 [B, N] or [B, 2, N], "labels" [B]}, one a step, of like length; seeded."""

    def __init__(self, sequences: Sequences, batch_size: int, *, steps: int, seed: int, shuffle: bool = True) -> None:
        lengths = [_length(x) for x in sequences.inputs]
        super().__init__(lengths, batch_size, steps=steps, seed=seed, shuffle=shuffle)
        self.sequences = sequences

    def make(self, rows: list[int]) -> dict[str, Tensor]:
        """Padded with zeros, which the mask hides."""
        inputs = [self.sequences.inputs[row] for row in rows]
        paired = bool(inputs) and isinstance(inputs[0][0], list)
        flat = [torch.tensor(part) for row in inputs for part in (row if paired else [row])]
        ids = nn.utils.rnn.pad_sequence(flat, batch_first=True)
        if paired:
            ids = ids.unflatten(0, (len(rows), 2))
        labels = torch.tensor([self.sequences.labels[row] for row in rows])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


@torch.no_grad()
def accuracy(model: nn.Module, sequences: Sequences, batch_size: int = 64) -> float:
    """The share that a classifier gets right, in evaluation mode; its mode is restored."""
    steps = -(-len(sequences.labels) // batch_size)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    right = 0
    with evaluating(model):
        for found in SequenceBatches(sequences, batch_size, steps=steps, seed=0, shuffle=False):
            batch = {name: part.to(device) for name, part in found.items()}
            right += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return right / len(sequences.labels)


def _length(tokens: list[Any]) -> int:
    return max(len(part) for part in tokens) if isinstance(tokens[0], list) else len(tokens)
