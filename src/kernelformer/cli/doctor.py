"""kernelformer doctor: what is installed, what will run and why, and what to install."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from kernelformer.cli.extras import EXTRAS
from kernelformer.cli.verb import Answer

__all__ = ["doctor"]

# The distribution of a package, where it is named otherwise.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml"}


def doctor() -> Answer:
    """Say what is installed, what computes attention on this machine and why, and what to install for the rest."""
    from rich.markup import escape
    from rich.table import Table

    found = {"machine": _machine(), "packages": _packages(), "attention": _attention()}
    tables: list[Any] = []
    for title, rows in found.items():
        table = Table(box=None, show_header=False, title=title, title_justify="left", title_style="bold")
        for _ in range(2):
            table.add_column(no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row.values()))
        tables += [table, ""]
    return Answer(found, tuple(tables))


def _machine() -> list[dict[str, str]]:
    import torch

    from kernelformer import __version__
    from kernelformer.learn.trainer import wants_bfloat16

    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    rows = {
        "kernelformer": __version__,
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "CUDA device": cuda,
        "bfloat16": "training runs in it" if wants_bfloat16("auto") else "no instructions for it: training in float32",
    }
    return [{"name": name, "value": value} for name, value in rows.items()]


def _packages() -> list[dict[str, str]]:
    rows = []
    for package, (extra, purpose) in EXTRAS.items():
        name = _DISTRIBUTIONS.get(package, package).replace("_", "-")
        try:
            state = metadata.version(name)
        except metadata.PackageNotFoundError:
            state, purpose = "missing", f"{purpose}: pip install 'kernelformer[{extra}]'"
        rows.append({"name": name, "state": state, "purpose": purpose})
    return rows


def _attention() -> list[dict[str, str]]:
    """What engine.explain says of a few usual calls."""
    import torch

    from kernelformer import engine
    from kernelformer.feature_maps import Hedgehog

    device = "cuda" if torch.cuda.is_available() else "cpu"
    feature_map: Any = Hedgehog(64, 8, 128).to(device)
    rows = []
    with torch.no_grad():
        for what, causal, length in (
            ("64 tokens, both ways", False, 64),
            ("16,384 tokens, both ways", False, 16_384),
            ("16,384 tokens, causal", True, 16_384),
            ("one token after a state", True, 1),
        ):
            x = torch.empty(1, 8, length, 64, device=device)
            choice = engine.explain(x, x, x, feature_map, causal=causal)
            rows.append({"call": what, "backend": choice.backend, "reason": choice.reason})
    return rows
