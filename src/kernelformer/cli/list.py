"""kernelformer list: the kernels there are."""

from __future__ import annotations

import inspect
import json
from typing import Annotated

import typer

__all__ = ["list_kernels"]


def list_kernels(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Name every kernel, with the first line of what it is."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from kernelformer.feature_maps import FEATURE_MAPS

    rows = [
        (name, kind.is_positive, (inspect.getdoc(kind) or "").splitlines()[0]) for name, kind in FEATURE_MAPS.items()
    ]
    if as_json:
        print(json.dumps([{"name": n, "positive": p, "summary": s} for n, p, s in rows], indent=2, ensure_ascii=False))
        return
    table = Table("kernel", "sign", "feature map", box=None, header_style="bold")
    for name, positive, summary in rows:
        table.add_row(name, "positive" if positive else "signed", escape(summary))
    Console(highlight=False).print(table)
