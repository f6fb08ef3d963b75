"""kernelformer align: the kernels of a classifier as particles that align with labels (phase A)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelformer.cli.options import AlignSettings, DryRun, Overwrite, TrainSettings, events
from kernelformer.cli.verb import Answer, Terminal, listed, resumable

__all__ = ["align", "classify"]


def align(settings: AlignSettings, terminal: Terminal, overwrite: Overwrite = False, dry_run: DryRun = False) -> Answer:
    """Move the particles of every head and layer toward alignment with labels; all else stays as it is.

    Writes a model folder that kernelformer.load(OUTPUT) and kernelformer train read, and report.json. Interrupted, the
    same command goes on where it stopped.
    """
    return classify(settings, terminal, _figures, overwrite=overwrite, dry_run=dry_run)


def classify(
    settings: AlignSettings | TrainSettings, terminal: Terminal, figures: Any, *, overwrite: bool, dry_run: bool
) -> Answer:
    """Prepare and run ``align`` or ``train``; ``figures`` picks from the record what is shown."""
    from kernelformer.cli.classifying import describe, prepare, run

    with resumable(events(settings)):
        prepared = prepare(settings)
        if dry_run:
            found = describe(prepared)
            return Answer(found, (listed(found),))
        record = run(prepared, terminal.say, overwrite=overwrite)
    return Answer(record, (listed(figures(record)),), Path(settings.output))


def _figures(record: dict[str, Any]) -> dict[str, str]:
    energy, pair = record["held_out_energy"], record["nearest_pair"]
    return {
        "energy of alignment on validation texts": f"{energy['before']:.5f} -> {energy['after']:.5f}",
        "nearest pair of particles": f"{pair['before']:.4f} -> {pair['after']:.4f}",
        "particles moved by": f"{record['mean_move']:.4f} on average",
    }
