"""Texts to batches of tensors: tokens, texts of like length together, padded per batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.errors import DataError, KernelformerError

__all__ = [
    "BatchPerStep",
    "LengthBatches",
    "StepBatches",
    "SteppedBatches",
    "TokenisedTexts",
    "batches",
    "evaluating",
    "padded",
    "tokenise",
]

Example = dict[str, list[int]]

_POOL = 32
"""Batches that are sorted by length together: little padding, yet no epoch runs from short to long."""


class TokenisedTexts(Dataset[Example]):
    """Texts as token ids, not padded: items are {"input_ids": [...], "attention_mask": [...], ...}.

    Works as ``train_dataset`` of ``transformers.Trainer`` with ``DataCollatorWithPadding``.

    Attributes:
        lengths: tokens a text, special ones included.
        full: how many texts fill ``max_length``; nearly all of these lost their end.
    """

    def __init__(self, examples: list[Example], max_length: int) -> None:
        self.examples = examples
        self.max_length = max_length
        self.lengths = [len(example["input_ids"]) for example in examples]
        self.full = sum(length >= max_length for length in self.lengths)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]

    def first(self, most: int) -> TokenisedTexts:
        """The first texts, at most ``most``."""
        return TokenisedTexts(self.examples[:most], self.max_length)


class LengthBatches(Sampler[list[int]]):
    """Batches of row numbers, each of texts of like length; seeded, another order every epoch.

    All rows are shuffled, each run of 32 batches is sorted by length, cut into batches, and the batches
    are shuffled. Every row comes once an epoch; the last batch may be smaller. Epochs count by themselves;
    :meth:`set_epoch` sets the count, for example to resume.

    Args:
        lengths: tokens a row.
        batch_size: rows a batch, at least 1.
        seed: with the epoch it fixes the order.
        shuffle: False sorts by length, longest first, so that a batch too large for memory fails at once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, seed: int, shuffle: bool = True) -> None:
        if batch_size < 1:
            raise KernelformerError(f"batch_size must be at least 1, got {batch_size}")
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of ``epoch``."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        rows = list(range(len(self.lengths)))
        if not self.shuffle:
            yield from self._cut(rows)
            return
        generator = torch.Generator(device="cpu").manual_seed(self.seed)
        for _ in range(self.epoch + 1):
            order = torch.randperm(len(rows), generator=generator).tolist()
        self.epoch += 1
        pool = self.batch_size * _POOL
        cut = [batch for start in range(0, len(rows), pool) for batch in self._cut(order[start : start + pool])]
        for index in torch.randperm(len(cut), generator=generator).tolist():
            yield cut[index]

    def _cut(self, rows: list[int]) -> list[list[int]]:
        rows = sorted(rows, key=lambda row: -self.lengths[row])
        return [rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size)]


def tokenise(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, pairs: Sequence[str] | None = None
) -> TokenisedTexts:
    """Token ids of texts, cut to ``max_length`` tokens, special ones included.

    With ``pairs``, a second text each, the tokenizer joins both, and the longer one is cut first.

    Raises:
        DataError: no texts.
        KernelformerError: ``max_length`` leaves no room for a token of the text.
    """
    if not texts:
        raise DataError("there are no texts to tokenise")
    special = tokenizer.num_special_tokens_to_add(pair=pairs is not None)
    if max_length <= special:
        raise KernelformerError(f"max_length must be above the {special} special tokens of a text, got {max_length}")
    second = None if pairs is None else list(pairs)
    encoded = tokenizer(list(texts), second, truncation=True, max_length=max_length)
    columns = {name: values for name, values in encoded.items() if name in tokenizer.model_input_names}
    examples = [{name: values[row] for name, values in columns.items()} for row in range(len(texts))]
    return TokenisedTexts(examples, max_length)


def batches(
    tokens: TokenisedTexts,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    *,
    seed: int,
    shuffle: bool = True,
) -> DataLoader[Example]:
    """Batches {"input_ids": int64 [B, N], "attention_mask": int64 [B, N], ...}, N the longest text of each.

    Each pass is another epoch of :class:`LengthBatches`; ``loader.batch_sampler.set_epoch`` resumes one.
    Draws nothing from the global generator.
    """
    return DataLoader(
        tokens,
        batch_sampler=LengthBatches(tokens.lengths, batch_size, seed=seed, shuffle=shuffle),
        collate_fn=DataCollatorWithPadding(tokenizer),
        generator=torch.Generator(device="cpu").manual_seed(seed),
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; its mode is restored, whatever happens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def padded(
    model: PreTrainedModel, tokens: TokenisedTexts, tokenizer: PreTrainedTokenizerBase, order: Iterable[list[int]]
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Row numbers and the batch of these rows, on the device of the model, for every batch of ``order``."""
    collate = DataCollatorWithPadding(tokenizer)
    for rows in order:
        yield rows, {name: part.to(model.device) for name, part in collate([tokens[row] for row in rows]).items()}


class SteppedBatches(Sequence[Mapping[str, Tensor]], ABC):
    """The batches of a training run, one a step, each made when it is asked for; a slice is a list of them."""

    @abstractmethod
    def at(self, step: int) -> dict[str, Tensor]:
        """The batch of this step, counted as a list counts."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[step] for step in range(*index.indices(len(self)))]
        return self.at(index)


class BatchPerStep(SteppedBatches):
    """Batches of texts of like length; epoch after epoch, seeded.

    Args:
        lengths: of what is put into batches, of like length each.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, steps: int, seed: int, shuffle: bool = True) -> None:
        sampler = LengthBatches(lengths, batch_size, seed=seed, shuffle=shuffle)
        self.rows: list[list[int]] = []
        while len(self.rows) < steps:
            self.rows.extend(sampler)
        del self.rows[steps:]

    @abstractmethod
    def make(self, rows: list[int]) -> dict[str, Tensor]:
        """The batch of these rows."""

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, step: int) -> dict[str, Tensor]:
        return self.make(self.rows[step])


class StepBatches(BatchPerStep):
    """Texts, padded by their tokenizer."""

    def __init__(
        self, tokens: TokenisedTexts, tokenizer: PreTrainedTokenizerBase, batch_size: int, *, steps: int, seed: int
    ) -> None:
        super().__init__(tokens.lengths, batch_size, steps=steps, seed=seed)
        self.tokens = tokens
        self.collate = DataCollatorWithPadding(tokenizer)

    def make(self, rows: list[int]) -> dict[str, Tensor]:
        """Input ids and mask, [B, N], N the longest text."""
        return dict(self.collate([self.tokens[row] for row in rows]))
