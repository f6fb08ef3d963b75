"""ListOps of the Long Range Arena: what nested lists of MIN, MAX, MED and SM (sum modulo ten) come to."""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelformer.errors import DataError
from kernelformer.tasks.sequences import Sequences, SequenceTask

__all__ = ["LISTOPS", "LISTOPS_SHORT", "ListOps", "draw_listops", "evaluate", "read_listops", "tokens_of"]

_OPERATORS: Final = ("[MIN", "[MAX", "[MED", "[SM")
_END: Final = "]"
_TOKENS: Final = (*_OPERATORS, _END, *"0123456789")
_IDS: Final = {token: number for number, token in enumerate(_TOKENS, 1)}
_NESTED: Final = 0.25
"""The chance of a list where a digit could stand, in the original."""


@dataclass(frozen=True)
class ListOps:
    """The law of the expressions.

    An argument is a list with probability 1/4, else a digit, below ``max_depth`` always a digit. A list has one of four
    operators and 2 to ``max_args`` arguments, both uniform. Only expressions longer than ``min_length`` and shorter
    than ``max_length`` tokens are kept.
    """

    max_depth: int = 10
    max_args: int = 10
    min_length: int = 500
    max_length: int = 2000


LISTOPS: Final = ListOps()
"""The original's: Tay et al. 2021, arXiv 2011.04006, after Nangia and Bowman 2018, arXiv 1804.06028."""

LISTOPS_SHORT: Final = ListOps(max_depth=5, max_args=6, min_length=24, max_length=128)
"""Short expressions of the same law, for small machines. Not the Long Range Arena's."""


def draw_listops(law: ListOps, sizes: tuple[int, int, int], seed: int) -> SequenceTask:
    """Expressions to train, validate and test on, no two alike.

    Args:
        sizes: how many of each; 96,000, 2,000 and 2,000 in the original.
    """
    draw = random.Random(seed)
    found: dict[tuple[str, ...], None] = {}
    while len(found) < sum(sizes):
        tokens: list[str] = []
        if _grow(draw, law, 1, tokens) and len(tokens) > law.min_length:
            found[tuple(tokens)] = None
    kept = list(found)
    ends = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    parts = [_sequences(kept[start:end]) for start, end in itertools.pairwise(ends)]
    return SequenceTask.of(parts, vocabulary=len(_TOKENS) + 1, classes=10, max_length=law.max_length)


def read_listops(folder: str | Path, max_length: int = 2000) -> SequenceTask:
    """The original's files: basic_train.tsv, basic_val.tsv and basic_test.tsv, with columns Source and Target.

    Raises:
        DataError: a file or a column is missing, or a token is none of the fifteen.
    """
    parts = [_read(Path(folder) / f"basic_{name}.tsv", max_length) for name in ("train", "val", "test")]
    return SequenceTask.of(parts, vocabulary=len(_TOKENS) + 1, classes=10, max_length=max_length)


def tokens_of(source: str) -> list[str]:
    """The tokens of an expression; parentheses, which the original's files have around all pairs, are left out."""
    return [token for token in source.split() if token not in ("(", ")")]


def evaluate(tokens: list[str] | tuple[str, ...]) -> int:
    """What an expression comes to, 0 to 9.

    Raises:
        DataError: the brackets do not match.
    """
    rest = iter(tokens)
    try:
        value = _value(next(rest), rest)
    except (StopIteration, ValueError, IndexError):
        value = -1
    if value < 0 or next(rest, None) is not None:
        raise DataError(f"the brackets of a ListOps expression do not match: {' '.join(tokens[:20])} …")
    return value


def _value(token: str, rest: Iterator[str]) -> int:
    if token not in _OPERATORS:
        return int(token)
    values: list[int] = []
    for inner in rest:
        if inner == _END:
            return _apply(token, values)
        values.append(_value(inner, rest))
    raise ValueError("a list has no end")


def _apply(operator: str, values: list[int]) -> int:
    if operator == "[SM":
        return sum(values) % 10
    values = sorted(values)
    if operator == "[MED":
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
    return values[0] if operator == "[MIN" else values[-1]


def _grow(draw: random.Random, law: ListOps, depth: int, tokens: list[str]) -> bool:
    """Append an expression; False as soon as it is too long."""
    if depth >= law.max_depth or draw.random() > _NESTED:
        tokens.append(str(draw.randrange(10)))
        return True
    tokens.append(draw.choice(_OPERATORS))
    for _ in range(draw.randint(2, law.max_args)):
        if not _grow(draw, law, depth + 1, tokens) or len(tokens) + 1 >= law.max_length:
            return False
    tokens.append(_END)
    return True


def _sequences(expressions: list[tuple[str, ...]]) -> Sequences:
    return Sequences([[_IDS[token] for token in tokens] for tokens in expressions], [evaluate(t) for t in expressions])


def _read(path: Path, max_length: int) -> Sequences:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        sources, labels = [row["Source"] for row in rows], [int(row["Target"]) for row in rows]
        inputs = [[_IDS[token] for token in tokens_of(source)][:max_length] for source in sources]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path} is no ListOps file with columns Source and Target ({error!r})") from error
    return Sequences(inputs, labels)
