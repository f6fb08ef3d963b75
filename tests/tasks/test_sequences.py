"""Batches pad what they must and mask it; accuracy is the share that is right."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from kernelformer.tasks.sequences import SequenceBatches, Sequences, SequenceTask, accuracy


class Counts(nn.Module):
    """Says class 1 of sequences whose tokens sum to an odd number; padding is zero."""

    def forward(self, input_ids, attention_mask, labels):
        odd = input_ids.flatten(1).sum(1) % 2
        return SimpleNamespace(logits=nn.functional.one_hot(odd, 2))


def some(count=13):
    inputs = [[1 + (i + j) % 3 for j in range(1 + i % 5)] for i in range(count)]
    return Sequences(inputs, [sum(tokens) % 2 for tokens in inputs])


def test_every_sequence_comes_once_an_epoch():
    sequences = some()
    batches = SequenceBatches(sequences, 4, steps=4, seed=0)
    rows = []
    for batch in batches:
        lengths = batch["attention_mask"].sum(1)
        assert torch.equal(batch["input_ids"] > 0, batch["attention_mask"].bool())
        rows += [
            (ids[:length].tolist(), int(label))
            for ids, length, label in zip(batch["input_ids"], lengths, batch["labels"], strict=True)
        ]
    assert sorted(rows) == sorted(zip(*sequences, strict=True))


def test_pairs_have_a_dimension_of_their_own():
    sequences = Sequences([[[1, 2, 3], [4]], [[5], [6]]], [0, 1])
    batch = SequenceBatches(sequences, 2, steps=1, seed=0, shuffle=False)[0]
    assert batch["input_ids"].tolist() == [[[1, 2, 3], [4, 0, 0]], [[5, 0, 0], [6, 0, 0]]]


def test_accuracy():
    sequences = some()
    assert accuracy(Counts(), sequences, 4) == 1.0
    wrong = Sequences(sequences.inputs, [1 - sequences.labels[0], *sequences.labels[1:]])
    assert accuracy(Counts(), wrong, 4) == 12 / 13


def test_the_commonest_class_is_that_of_training():
    train, test = Sequences([[1]] * 3, [0, 0, 1]), Sequences([[1]] * 4, [0, 1, 1, 1])
    assert SequenceTask(train, train, test, 2, 2, 1).majority() == 0.25
