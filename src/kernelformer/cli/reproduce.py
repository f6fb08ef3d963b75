"""kernelformer reproduce: a paper's claim, measured again."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Annotated

import typer

from kernelformer.cli.claims import CLAIMS, Claim, Run
from kernelformer.cli.options import Output
from kernelformer.cli.verb import Answer, Terminal, listed, resumable
from kernelformer.errors import KernelformerError
from kernelformer.tasks.files import write_text

__all__ = ["reproduce"]


def reproduce(
    terminal: Terminal,
    claim: Annotated[str | None, typer.Argument(metavar="[CLAIM]", help="A claim's name; none lists them.")] = None,
    output: Output = "runs/reproduce",
    seeds: Annotated[int | None, typer.Option(help="Repetitions; each claim has its own default.")] = None,
    scale: Annotated[str | None, typer.Option(help="Size of the study, where a claim has several.")] = None,
    archives: Annotated[
        str, typer.Option(help="The folder of source archives from which some claims take their data.")
    ] = "runs/archives",
    data: Annotated[
        str | None, typer.Option(help="Folder or data set's name of the originals, in the place of what is shipped.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write loss curves for TensorBoard to OUTPUT/CLAIM*.events.")
    ] = False,
) -> Answer:
    """Measure a paper's claim here: a table on stdout, JSON and plots in OUTPUT/CLAIM*, with the scale in their names.

    Interrupted, the same command goes on where it stopped.
    """
    if claim is None:
        rows = [
            {"claim": name, "summary": c.summary, "scales": c.scales, "seeds": c.seeds} for name, c in CLAIMS.items()
        ]
        return Answer(rows, (listed({name: known.summary for name, known in CLAIMS.items()}),))
    if claim not in CLAIMS:
        raise KernelformerError(f"no claim {claim!r}; there are: {', '.join(CLAIMS)}")
    chosen = CLAIMS[claim]
    if data is not None and not chosen.takes_data:
        takers = ", ".join(name for name, known in CLAIMS.items() if known.takes_data)
        raise KernelformerError(f"{claim} takes no --data; these do: {takers}")
    size = _scale(claim, chosen, scale)
    run = Run(
        name=claim,
        stem=chosen.stem(claim, size),
        folder=Path(output),
        seeds=_seeds(chosen, seeds),
        scale=size,
        archives=Path(archives),
        data=data,
        tensorboard=tensorboard,
        say=terminal.say,
    )
    run.folder.mkdir(parents=True, exist_ok=True)
    # What a study prints are its tables, which --json leaves out.
    with resumable(), contextlib.redirect_stdout(io.StringIO()) as tables:
        chosen.measure(run)
    shown = tables.getvalue().strip()
    write_text(run.folder / f"{run.stem}.md", shown + "\n")
    found = json.loads((run.folder / f"{run.stem}.json").read_text(encoding="utf-8"))
    return Answer(found, (shown,), run.folder, f"{run.stem}.options.toml")


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
