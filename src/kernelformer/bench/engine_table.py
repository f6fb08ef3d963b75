"""The figures of ``bench.engine`` as tables: cells for the terminal, Markdown for the docs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kernelformer.bench.markdown import markdown_table

__all__ = ["Table", "markdown", "reasons", "tables"]

_NONE = "–"


class Table(NamedTuple):
    """A title, and rows of as many cells as there are heads."""

    title: str
    heads: list[str]
    rows: list[list[str]]


def tables(result: dict[str, Any]) -> list[Table]:
    """Times, where kernels begin to win, and memory if it was measured; rivals without any figure are left out."""
    rows = result["rows"]
    rivals = [name for name in result["setting"]["rivals"] if any(_known(row["rivals"][name]) for row in rows)]
    found = [_times(rows, rivals)]
    if result["crossovers"]:
        found.append(_crossovers(result["crossovers"], rivals))
    if any(row["mib"] is not None for row in rows):
        found.append(_memory(rows, rivals))
    return found


def reasons(result: dict[str, Any]) -> list[str]:
    """Why figures are missing, each reason once."""
    found = []
    for row in result["rows"]:
        found += [value for value in (*row["rivals"].values(), row["mib"], *row["rivals_mib"].values()) if _said(value)]
    return list(dict.fromkeys(found))


def markdown(table: Table) -> str:
    """The table, without its title, ending with a newline."""
    named = [column for column, head in enumerate(table.heads) if head in ("form", "kernel")]
    return markdown_table(table.heads, table.rows, named) + "\n"


def _times(rows: list[dict[str, Any]], rivals: list[str]) -> Table:
    lines = [
        [
            *_key(row),
            _short(1000 * row["seconds"]),
            f"{row['seconds'] / row['floor']:.2f}",
            *(_ratio(row["rivals"][name], row["seconds"]) for name in rivals),
        ]
        for row in rows
    ]
    return Table("Time", ["form", "kernel", "N", "ms", "/ floor", *(f"× {name}" for name in rivals)], lines)


def _crossovers(crossovers: list[dict[str, Any]], rivals: list[str]) -> Table:
    lengths = {(each["form"], each["kernel"], each["rival"]): each["length"] for each in crossovers}
    lines = []
    for form, kernel in dict.fromkeys((form, kernel) for form, kernel, _ in lengths):
        cells = [_start(lengths.get((form, kernel, name), math.nan)) for name in rivals]
        lines.append([form, kernel, *cells])
    return Table("Faster from N =", ["form", "kernel", *rivals], lines)


def _memory(rows: list[dict[str, Any]], rivals: list[str]) -> Table:
    lines = [
        [
            *_key(row),
            _short(row["mib"]),
            _short(row["floor_mib"]),
            *(_short(row["rivals_mib"].get(name)) for name in rivals),
        ]
        for row in rows
    ]
    return Table("Memory, MiB", ["form", "kernel", "N", "peak", "floor", *rivals], lines)


def _key(row: dict[str, Any]) -> list[str]:
    return [row["form"], row["kernel"], f"{row['length']:,}"]


def _known(value: object) -> bool:
    return isinstance(value, float)


def _said(value: object) -> bool:
    return isinstance(value, str)


def _start(length: float | None) -> str:
    """None is never, and not a number is not measured."""
    if length is None:
        return "never"
    return _NONE if math.isnan(length) else f"{length:,.0f}"


def _short(value: float | str | None) -> str:
    if not isinstance(value, float):
        return _NONE
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ratio(rival: float | str, own: float) -> str:
    if isinstance(rival, str):
        return _NONE
    return f"{rival / own:.2f}" if rival < 10 * own else f"{rival / own:,.0f}"
