"""kernelformer report: one page over several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelformer.cli.options import OwnKernel
from kernelformer.cli.verb import Answer, Terminal, resumable

__all__ = ["report"]

_TEXT = "The actors are good, but the plot of this long film is dull, and the end of it is worse."


def report(
    terminal: Terminal,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUNS...", help="Folders that convert, compare, align, train or reproduce wrote."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="The page to write.")] = "report.html",
    text: Annotated[str, typer.Option(help="What models are shown reading; cut to 24 tokens.")] = _TEXT,
    own_kernel: OwnKernel = None,
) -> Answer:
    """Write one page of figures and pictures over several runs, in one file that asks nothing of any network."""
    from kernelformer.bench.page import render_page
    from kernelformer.cli.reporting import read_run
    from kernelformer.tasks.files import write_text

    with resumable():
        sections = [
            section for run in runs for section in read_run(Path(run), text, terminal.say, own_kernel=own_kernel)
        ]
    page = Path(output)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, render_page(sections))
    return Answer({"page": str(page), "sections": [section.title for section in sections]}, (str(page),))
