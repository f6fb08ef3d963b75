"""Batches of text that is read as it goes, for data sets larger than memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.batches import LengthBatches, SteppedBatches, TokenisedTexts, tokenise
from kernelformer.tasks.language import token_blocks

__all__ = ["StreamBatches"]


@runtime_checkable
class _InEpochs(Protocol):
    """Rows whose order may differ from pass to pass."""

    def set_epoch(self, epoch: int) -> None: ...


class StreamBatches(SteppedBatches):
    """The batches of a training run, one a step, from rows that come one after the other; epoch after epoch.

    ``buffer`` texts at a time are tokenised, shuffled and put into batches of like length, so memory does not grow with
    the data. Shuffle the rows themselves where their order is not random. Batches are made in their order: asking for
    one before the last means reading from the start again, and so does going on after an interruption.

    Args:
        rows: anything that can be iterated over again, as ``datasets.load_dataset(..., streaming=True)``; where it has
            a ``set_epoch``, that is called before each pass.
        batch_size: texts, or blocks, a batch.
        steps: batches in all.
        max_length: tokens a text is cut to, or a block has.
        text_column: of the rows; empty texts are left out.
        blocks: for decoders: every text is cut into blocks instead of being cut off.
        seed: with the rows it fixes every batch.
        buffer: texts.

    Raises:
        KernelformerError: a size below 1.
        DataError: (when it is met) rows without that column, or none with a text.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int,
        *,
        steps: int,
        max_length: int,
        text_column: str = "text",
        blocks: bool = False,
        seed: int = 0,
        buffer: int = 10_000,
    ) -> None:
        for name, value in (("steps", steps), ("batch_size", batch_size), ("buffer", buffer)):
            if value < 1:
                raise KernelformerError(f"{name} must be at least 1, got {value}")
        self.rows = rows
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.steps = steps
        self.max_length = max_length
        self.text_column = text_column
        self.cut = token_blocks if blocks else tokenise
        self.seed = seed
        self.buffer = buffer
        self.collate = DataCollatorWithPadding(tokenizer)
        self._coming = self._batches()
        self._next = 0

    def __len__(self) -> int:
        return self.steps

    def at(self, step: int) -> dict[str, Tensor]:
        step = range(self.steps)[step]
        if step < self._next:
            self._coming, self._next = self._batches(), 0
        batch = next(itertools.islice(self._coming, step - self._next, None))
        self._next = step + 1
        return dict(self.collate(batch))

    def _batches(self) -> Iterator[list[Any]]:
        for number, tokens in enumerate(self._pools()):
            for chosen in LengthBatches(tokens.lengths, self.batch_size, seed=self.seed + number):
                yield [tokens[row] for row in chosen]

    def _pools(self) -> Iterator[TokenisedTexts]:
        for epoch in itertools.count():
            if isinstance(self.rows, _InEpochs):
                self.rows.set_epoch(epoch)
            texts, found = self._texts(), False
            while pool := list(itertools.islice(texts, self.buffer)):
                try:
                    tokens = self.cut(self.tokenizer, pool, self.max_length)
                except DataError:  # none of them is long enough for a block
                    continue
                found = True
                yield tokens
            if not found:
                raise DataError(f"no row has a text in its column {self.text_column!r}, or none is long enough")

    def _texts(self) -> Iterator[str]:
        for number, row in enumerate(self.rows):
            if self.text_column not in row:
                raise DataError(f"row {number} has no column {self.text_column!r}; there are: {', '.join(row)}")
            text = row[self.text_column]
            if isinstance(text, str) and text.strip():
                yield text
