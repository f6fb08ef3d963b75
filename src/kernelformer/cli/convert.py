"""kernelformer convert: a pretrained encoder or decoder to linear-time attention with a learned kernel."""

from __future__ import annotations

from pathlib import Path

from kernelformer.cli.options import ConvertSettings, DryRun, Overwrite, events
from kernelformer.cli.verb import Answer, Terminal, listed, resumable

__all__ = ["convert"]


def convert(
    settings: ConvertSettings, terminal: Terminal, overwrite: Overwrite = False, dry_run: DryRun = False
) -> Answer:
    """Swap a model's softmax attention for a learned kernel, distil it on your text, and report what is kept.

    Writes a model folder that kernelformer.load(OUTPUT) reads, report.json and report.html. Interrupted, the same
    command goes on where it stopped.
    """
    from kernelformer.bench.report import summary_table
    from kernelformer.cli.converting import describe, prepare, run

    with resumable(events(settings)):
        prepared = prepare(settings)
        if dry_run:
            found = describe(prepared)
            return Answer(found, (listed(found),))
        record = run(prepared, terminal.say, overwrite=overwrite)
    return Answer(record, (summary_table(record),), Path(settings.output))
