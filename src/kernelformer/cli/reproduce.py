"""kernelformer reproduce: a paper's claim, measured again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kernelformer.errors import KernelformerError

__all__ = ["reproduce"]


def reproduce(
    claim: Annotated[str | None, typer.Argument(metavar="CLAIM", help="A claim's name; none lists them.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "runs/reproduce",
    seeds: Annotated[int, typer.Option(help="Repetitions.")] = 16,
) -> None:
    """Measure a paper's claim here: a table on stdout, JSON and plots in OUTPUT/CLAIM.*."""
    if claim is None:
        for name, (summary, _) in CLAIMS.items():
            print(f"{name}: {summary}")
        return
    if claim not in CLAIMS:
        raise KernelformerError(f"no claim {claim!r}; there are: {', '.join(CLAIMS)}")
    if seeds < 2:
        raise KernelformerError(f"--seeds must be at least 2, for a spread; got {seeds}")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    CLAIMS[claim][1](folder, seeds)


def _anisotropy(folder: Path, seeds: int) -> None:
    from rich.console import Console

    from kernelformer.bench.anisotropy import WIDTHS, anisotropy_markdown, anisotropy_plots, measure_anisotropy
    from kernelformer.cli.settings import write_json

    rows = measure_anisotropy(seeds, say=Console(stderr=True, highlight=False).print)
    write_json(folder / "anisotropy.json", rows)
    for name, plot in anisotropy_plots(rows).items():
        (folder / f"anisotropy-{name}.svg").write_text(plot, encoding="utf-8")
    for width in WIDTHS:
        print(f"\n{width} features\n\n{anisotropy_markdown(rows, width)}")


CLAIMS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "anisotropy": (
        "DARKFormer: random features suffer from anisotropic inputs, and sampling that knows the covariance does not",
        _anisotropy,
    ),
}
"""Name -> (the claim, what measures it)."""
