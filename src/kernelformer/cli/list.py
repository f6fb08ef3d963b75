"""kernelformer list: the kernels there are."""

from __future__ import annotations

import inspect
from typing import Any

from kernelformer.cli.verb import Answer

__all__ = ["list_kernels"]


def list_kernels() -> Answer:
    """Name every kernel, with the first line of what it is."""
    from rich.markup import escape
    from rich.table import Table

    from kernelformer.feature_maps import FEATURE_MAPS

    rows: list[dict[str, Any]] = [
        {"name": name, "positive": kind.is_positive, "summary": (inspect.getdoc(kind) or "").splitlines()[0]}
        for name, kind in FEATURE_MAPS.items()
    ]
    table = Table("kernel", "sign", "feature map", box=None, header_style="bold")
    for row in rows:
        table.add_row(row["name"], "positive" if row["positive"] else "signed", escape(row["summary"]))
    return Answer(rows, (table,))
