"""kernelformer compare: which kernel to choose for a model and a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelformer.cli.options import CompareSettings, ConvertSettings, DryRun, parse_numbers
from kernelformer.cli.verb import Answer, Terminal, listed, resumable

__all__ = ["compare", "rank"]


def compare(
    settings: CompareSettings,
    terminal: Terminal,
    kernels: Annotated[str | None, typer.Option(help="Kernels with commas; all if left out.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas; figures are means over them.")] = "0",
    dry_run: DryRun = False,
) -> Answer:
    """Distil every kernel at equal width on one model, and rank them by what they keep of it.

    An encoder's are ranked by its attention outputs, or its embeddings where students are trained; a decoder's by
    perplexity.

    Each lands in OUTPUT/KERNEL-SEED; compare.json and compare.svg hold the ranking. Interrupted, the same command
    goes on.
    """
    from kernelformer.feature_maps import FEATURE_MAPS

    every = sorted(name for name, found in FEATURE_MAPS.items() if not found.is_gated)
    names = every if kernels is None else kernels.split(",")
    return rank(settings, terminal, names, parse_numbers("--seeds", seeds), dry_run=dry_run)


def rank(settings: ConvertSettings, terminal: Terminal, names: list[str], seeds: list[int], *, dry_run: bool) -> Answer:
    """Compare kernels on one model."""
    from kernelformer.cli.comparing import compare as compare_kernels
    from kernelformer.cli.comparing import describe_plan, plan, ranking_table

    with resumable():
        planned = plan(settings, names, seeds)
        if dry_run:
            found = describe_plan(planned)
            return Answer(found, (listed(found),))
        rows = compare_kernels(planned, Path(settings.output), terminal.say)
    return Answer(rows, (ranking_table(rows),), Path(settings.output))
