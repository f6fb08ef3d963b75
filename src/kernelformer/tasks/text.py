"""Texts with labels and groups, from files or data sets, and their split in two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from kernelformer.errors import DataError
from kernelformer.tasks.reading import read_rows

__all__ = ["Corpus", "load_texts", "split"]


@dataclass(frozen=True)
class Corpus:
    """Texts in the order they were read.

    Attributes:
        texts: no empty ones.
        labels: one a text, or None where no label column was asked for.
        groups: one a text (a film, a document), or None; a split keeps a group on one side.
        origin: the sources.
        empty: how many empty texts were dropped.
        unlabelled: how many texts were dropped because their label is not among those to keep.
        pairs: the second text of each pair, or None where texts stand alone.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] | None
    groups: tuple[str, ...] | None
    origin: tuple[str, ...]
    empty: int = 0
    unlabelled: int = 0
    pairs: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Corpus:
        """The corpus of these rows, in their order; what was dropped is counted in the whole only."""
        return Corpus(
            texts=tuple(self.texts[row] for row in rows),
            labels=None if self.labels is None else tuple(self.labels[row] for row in rows),
            groups=None if self.groups is None else tuple(self.groups[row] for row in rows),
            origin=self.origin,
            pairs=None if self.pairs is None else tuple(self.pairs[row] for row in rows),
        )

    def sample(self, most: int, *, seed: int) -> Corpus:
        """At most ``most`` texts, drawn at random, in the order of the corpus."""
        if len(self) <= most:
            return self
        generator = torch.Generator(device="cpu").manual_seed(seed)
        return self.take(sorted(torch.randperm(len(self), generator=generator)[:most].tolist()))


def load_texts(
    sources: Sequence[str],
    *,
    text_column: str = "text",
    pair_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    keep_labels: Collection[str] | None = None,
    min_rows: int = 1,
) -> Corpus:
    """Read texts from files and data sets; their columns must agree.

    Args:
        sources: .txt (a line is a text), .jsonl, .csv, .tsv files in UTF-8, each also .gz or .bz2;
            or a name that ``datasets`` loads, "owner/name" or "owner/name/config:split" (split: train).
        text_column: the column of the text; the lines of a .txt file whatever its name.
        pair_column: the column of a second text, for pairs; a pair is empty if either text is.
        label_column: the column of a label, any value becomes a string.
        group_column: the column of a group that must not be torn apart, for example a film.
        keep_labels: rows with other labels are dropped and counted.
        min_rows: fewer texts than that are refused.

    Raises:
        DataError: no source, a source that cannot be read, a missing column or label, too few texts.
    """
    if isinstance(sources, str) or not sources:
        raise DataError(f"sources must be a list of files or data set names, at least one; got {sources!r}")
    if keep_labels is not None and label_column is None:
        raise DataError("labels to keep need a label column: give label_column (--label-column)")
    texts: list[str] = []
    pairs: list[str] = []
    labels: list[str] = []
    groups: list[str] = []
    empty = 0
    seen_labels: Counter[str] = Counter()
    for source in sources:
        for place, row in read_rows(source, text_column):
            text = _text(row, text_column, place)
            pair = None if pair_column is None else _text(row, pair_column, place)
            if not text.strip() or (pair is not None and not pair.strip()):
                empty += 1
                continue
            if label_column is not None:
                label = _value(row, label_column, place, "label", required=keep_labels is None)
                seen_labels[label] += 1
                if keep_labels is not None and label not in keep_labels:
                    continue
                labels.append(label)
            if group_column is not None:
                groups.append(_value(row, group_column, place, "group", required=True))
            if pair is not None:
                pairs.append(pair)
            texts.append(text)
    _check_labels(keep_labels, seen_labels)
    if len(texts) < min_rows:
        raise DataError(
            f"{', '.join(sources)}: at least {min_rows} texts are needed, got {len(texts)} "
            f"({empty} empty ones and {seen_labels.total() - len(labels)} with other labels left out)"
        )
    return Corpus(
        texts=tuple(texts),
        labels=tuple(labels) if label_column is not None else None,
        groups=tuple(groups) if group_column is not None else None,
        origin=tuple(sources),
        empty=empty,
        unlabelled=seen_labels.total() - len(labels),
        pairs=tuple(pairs) if pair_column is not None else None,
    )


def split(corpus: Corpus, *, held_out: int, seed: int) -> tuple[Corpus, Corpus]:
    """Split into training texts and exactly ``held_out`` test texts, no group on both sides.

    Groups are drawn at random until the test texts suffice, then cut to the number by a second draw.
    Training texts, or pairs, that are also test texts (but for case and white space) are dropped.

    Returns:
        (train, test), both in the order of the corpus.

    Raises:
        DataError: ``held_out`` leaves no text on one of the sides.
    """
    if not 0 < held_out < len(corpus):
        raise DataError(
            f"held_out must lie between 1 and {len(corpus) - 1}, the corpus has {len(corpus)} texts; got {held_out}"
        )
    generator = torch.Generator(device="cpu").manual_seed(seed)
    keys = corpus.groups if corpus.groups is not None else tuple(str(row) for row in range(len(corpus)))
    rows_of: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of.setdefault(key, []).append(row)
    names = list(rows_of)
    aside: list[int] = []
    for index in torch.randperm(len(names), generator=generator).tolist():
        if len(aside) >= held_out:
            break
        aside.extend(rows_of[names[index]])
    chosen = sorted(aside[i] for i in torch.randperm(len(aside), generator=generator)[:held_out].tolist())
    test = corpus.take(chosen)
    hidden, known = set(aside), set(_normalised(test))
    train = [row for row, text in enumerate(_normalised(corpus)) if row not in hidden and text not in known]
    if not train:
        raise DataError(
            f"{held_out} held-out texts leave none to train on, of {len(corpus)} in {len(names)} groups; hold out fewer"
        )
    return corpus.take(train), test


def _text(row: dict[str, object], column: str, place: str) -> str:
    value = _column(row, column, place, "text")
    if value is not None and not isinstance(value, str):
        raise DataError(f"{place}: the text in {column!r} must be a string, got {type(value).__name__}")
    return value or ""


def _value(row: dict[str, object], column: str, place: str, role: str, *, required: bool) -> str:
    value = _column(row, column, place, role)
    text = "" if value is None else str(value).strip()
    if required and not text:
        raise DataError(f"{place}: the {role} in {column!r} is missing; fill it in or drop the row")
    return text


def _column(row: dict[str, object], column: str, place: str, role: str) -> object:
    if column not in row:
        raise DataError(f"{place}: no {role} column {column!r}; there are: {', '.join(map(str, row)) or 'none'}")
    return row[column]


def _check_labels(keep: Collection[str] | None, seen: Counter[str]) -> None:
    for label in keep or ():
        if label not in seen:
            common = ", ".join(name for name, _ in seen.most_common(10))
            raise DataError(f"no text has the label {label!r}; there are: {common or 'none'}")


def _normalised(corpus: Corpus) -> list[tuple[str, ...]]:
    """What makes two texts, or two pairs, the same: their words in any case."""
    columns = (corpus.texts,) if corpus.pairs is None else (corpus.texts, corpus.pairs)
    return [tuple(" ".join(text.casefold().split()) for text in row) for row in zip(*columns, strict=True)]
