"""Rows of text files and data sets, read strictly: a row that does not fit is an error with its line.

Files are read by the standard library, not by ``datasets``: that turns the texts "NA" and "null" into
nothing, replaces short rows in silence and cannot say where a bad byte is.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kernelformer.errors import DataError

__all__ = ["Rows", "import_datasets", "parse_dataset", "read_rows"]

Rows = Iterator[tuple[str, dict[str, object]]]
"""Pairs of a place ("reviews.csv, line 3") and the row's columns."""


def read_rows(source: str, line_column: str) -> Rows:
    """The rows of a file by its suffix, or of a ``datasets`` name ("owner/name", "owner/name/config:split").

    A file is read as a whole before its first row is given.

    Args:
        line_column: what the one column of a .txt file is called.

    Raises:
        DataError: no such file or data set, a suffix that is not known, a file that cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        raise DataError(f"{source} is a folder; give the files in it, one by one")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in _UNPACK else ""
    kind = suffixes[-1] if suffixes else ""
    if kind in FORMATS:
        return FORMATS[kind](source, _decode(source, _read_bytes(path, packed)), line_column)
    if path.exists():
        known = ", ".join(FORMATS)
        raise DataError(f"{source}: its format cannot be told from its suffix; known: {known}, each also .gz or .bz2")
    return _read_dataset(source)


def _read_bytes(path: Path, packed: str) -> bytes:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return _UNPACK[packed](raw) if packed else raw
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked as {packed}: {error}") from error


def _decode(source: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # error.start counts from behind a byte order mark, so the place is found in what was decoded.
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{source}, line {line}: byte 0x{error.object[error.start]:02x} at offset {error.start} is not UTF-8; "
            "convert the file, for example by iconv -f latin1 -t utf-8"
        ) from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    # str.splitlines would also split at form feeds and U+2028, which stand inside texts.
    lines = text.removesuffix("\n").split("\n") if text else []
    return enumerate((line.removesuffix("\r") for line in lines), 1)


def _read_lines(source: str, text: str, column: str) -> Rows:
    for number, line in _lines(text):
        yield f"{source}, line {number}", {column: line}


def _read_jsonl(source: str, text: str, column: str) -> Rows:
    for number, line in _lines(text):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{source}, line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{source}, line {number} must be an object with named columns, got {type(row).__name__}")
        yield f"{source}, line {number}", row


def _read_table(source: str, text: str, delimiter: str) -> Rows:
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(text)))
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = next(reader, [])
        if not header:
            raise DataError(f"{source} is empty or its first line is; a line with the names of the columns is needed")
        if len(set(header)) < len(header):
            raise DataError(f"{source}: a column name is there twice: {', '.join(header)}")
        for fields in reader:
            place = f"{source}, line {reader.line_num}"
            if fields and len(fields) != len(header):
                raise DataError(f"{place} has {len(fields)} fields, the header has {len(header)}: {', '.join(header)}")
            if fields:
                yield place, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise DataError(f"{source}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(limit)


def import_datasets(source: str) -> Any:
    """The library that reads data sets by their names.

    Raises:
        DataError: it is not installed.
    """
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"{source}: there is no such file; if it names a data set, install its reader: pip install datasets"
        ) from None
    return datasets


def parse_dataset(source: str) -> tuple[str, str | None, str]:
    """ "owner/name/config:split" -> name, configuration, split; without the latter (name, None, "train")."""
    name, _, split = source.partition(":")
    name, config = name.rsplit("/", 1) if name.count("/") == 2 else (name, None)
    return name, config, split or "train"


def _read_dataset(source: str) -> Rows:
    datasets = import_datasets(source)
    name, config, split = parse_dataset(source)
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # the library raises some dozen unrelated classes here
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{source}: there is no such file, and no data set {name!r}, split {split!r}, could be loaded ({reason}); "
            "check the path, or the network and HF_HUB_OFFLINE, or download it and give its files"
        ) from error
    names = {column: kind.names for column, kind in rows.features.items() if isinstance(kind, datasets.ClassLabel)}
    for number, row in enumerate(rows):
        yield f"{source}, row {number}", {column: _label(value, names.get(column)) for column, value in row.items()}


def _label(value: object, names: list[str] | None) -> object:
    """The name of a class that a data set stores as a number; -1 stands for none."""
    if names is None or not isinstance(value, int):
        return value
    return names[value] if value >= 0 else None


FORMATS: Final[dict[str, Callable[[str, str, str], Rows]]] = {
    ".txt": _read_lines,
    ".jsonl": _read_jsonl,
    ".csv": lambda source, text, column: _read_table(source, text, ","),
    ".tsv": lambda source, text, column: _read_table(source, text, "\t"),
}
_UNPACK: Final[dict[str, Callable[[bytes], bytes]]] = {".gz": gzip.decompress, ".bz2": bz2.decompress}
