"""kernelformer compare: which kernel to choose for a model and a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelformer.cli.options import (
    BatchSize,
    ConvertSettings,
    Data,
    DistillSteps,
    DryRun,
    Finetune,
    FinetuneSteps,
    GroupColumn,
    HeldOut,
    MaxLength,
    Output,
    ProbeColumn,
    TextColumn,
    Window,
    parse_numbers,
)
from kernelformer.cli.verb import Answer, Terminal, listed, resumable

__all__ = ["compare", "rank"]


def compare(
    terminal: Terminal,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder or hub name of a Hugging Face model.")],
    data: Data = [],  # noqa: B006  (typer's way to say none; nothing changes it)
    output: Output = "compared",
    kernels: Annotated[str | None, typer.Option(help="Kernels with commas; all if left out.")] = None,
    num_features: Annotated[int, typer.Option(help="Features M of every kernel whose width is free.")] = 64,
    window: Window = 0,
    seeds: Annotated[str, typer.Option(help="Seeds with commas; figures are means over them.")] = "0",
    text_column: TextColumn = "text",
    label_column: ProbeColumn = None,
    group_column: GroupColumn = None,
    held_out: HeldOut = None,
    max_length: MaxLength = 128,
    finetune: Finetune = "none",
    distill_steps: DistillSteps = 150,
    finetune_steps: FinetuneSteps = 1000,
    batch_size: BatchSize = 32,
    dry_run: DryRun = False,
) -> Answer:
    """Distil every kernel at equal width on one model, and rank them by what they keep of it.

    An encoder's are ranked by its attention outputs, or its embeddings where students are trained; a decoder's by
    perplexity.

    Each lands in OUTPUT/KERNEL-SEED; compare.json and compare.svg hold the ranking. Interrupted, the same command
    goes on.
    """
    from kernelformer.feature_maps import FEATURE_MAPS

    settings = ConvertSettings(
        model=model,
        data=data,
        output=output,
        num_features=num_features,
        window=window,
        text_column=text_column,
        label_column=label_column,
        group_column=group_column,
        held_out=held_out,
        max_length=max_length,
        finetune=finetune,
        distill_steps=distill_steps,
        finetune_steps=finetune_steps,
        batch_size=batch_size,
        measure=False,
    )
    every = sorted(name for name, found in FEATURE_MAPS.items() if not found.is_gated)
    names = every if kernels is None else kernels.split(",")
    return rank(settings, terminal, names, parse_numbers("--seeds", seeds), dry_run=dry_run)


def rank(settings: ConvertSettings, terminal: Terminal, names: list[str], seeds: list[int], *, dry_run: bool) -> Answer:
    """Compare kernels on one model."""
    from kernelformer.cli.comparing import compare as compare_kernels
    from kernelformer.cli.comparing import describe_plan, plan, ranking_table

    with resumable():
        runs = plan(settings, names, seeds)
        if dry_run:
            return Answer(describe_plan(runs), (listed(describe_plan(runs)),))
        rows = compare_kernels(runs, Path(settings.output), terminal.say)
    return Answer(rows, (ranking_table(rows),), Path(settings.output))
