"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

__all__ = ["markdown_table"]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """A header, a line of marks and a line a row, without a newline at the end.

    Args:
        left: the columns that are aligned to the left; all others hold numbers.

    Example:
        >>> print(markdown_table(["kernel", "error"], [["favor", "0.2"]]))
        | kernel | error |
        | --- | ---: |
        | favor | 0.2 |
    """
    marks = ["---" if column in left else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, marks, *rows))
