"""kernelformer reproduce: a paper's claim, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernelformer.cli.claims import CLAIMS, Claim, Run
from kernelformer.errors import KernelformerError

__all__ = ["reproduce"]


def reproduce(
    claim: Annotated[str | None, typer.Argument(metavar="CLAIM", help="A claim's name; none lists them.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "runs/reproduce",
    seeds: Annotated[int | None, typer.Option(help="Repetitions; each claim has its own default.")] = None,
    scale: Annotated[str | None, typer.Option(help="Size of the study, where a claim has several.")] = None,
) -> None:
    """Measure a paper's claim here: a table on stdout, JSON and plots in OUTPUT/CLAIM*."""
    if claim is None:
        for name, known in CLAIMS.items():
            print(f"{name}: {known.summary}")
        return
    if claim not in CLAIMS:
        raise KernelformerError(f"no claim {claim!r}; there are: {', '.join(CLAIMS)}")
    chosen = CLAIMS[claim]
    run = Run(
        name=claim,
        folder=Path(output),
        seeds=_seeds(chosen, seeds),
        scale=_scale(claim, chosen, scale),
        say=Console(stderr=True, highlight=False, markup=False).print,
    )
    run.folder.mkdir(parents=True, exist_ok=True)
    chosen.measure(run)


def _seeds(claim: Claim, given: int | None) -> int:
    seeds = claim.seeds if given is None else given
    if seeds < 2:
        raise KernelformerError(f"--seeds must be at least 2, for a spread; got {seeds}")
    return seeds


def _scale(name: str, claim: Claim, given: str | None) -> str:
    if given is None:
        return claim.scales[0]
    if given not in claim.scales:
        raise KernelformerError(f"{name} has no scale {given!r}; there are: {', '.join(claim.scales)}")
    return given
