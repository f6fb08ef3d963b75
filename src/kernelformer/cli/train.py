"""kernelformer train: a text classifier by cross-entropy, its kernels frozen or not (phase B, or plain training)."""

from __future__ import annotations

from typing import Any

from kernelformer.cli.align import classify
from kernelformer.cli.options import DryRun, Overwrite, TrainSettings
from kernelformer.cli.verb import Answer, Terminal

__all__ = ["train"]


def train(settings: TrainSettings, terminal: Terminal, overwrite: Overwrite = False, dry_run: DryRun = False) -> Answer:
    """Train a classifier, aligned before or not, with any kernel or softmax; weights are selected on validation texts.

    Writes a model folder, and report.json with the metrics of texts that neither training nor selection saw.
    Interrupted, the same command goes on where it stopped.
    """
    return classify(settings, terminal, _figures, overwrite=overwrite, dry_run=dry_run)


def _figures(record: dict[str, Any]) -> dict[str, str]:
    found = dict(record["test"])
    rows = {"test texts": f"{found.pop('texts'):,}"}
    return rows | {name.replace("_", " "): f"{value:.4f}" for name, value in found.items() if value is not None}
