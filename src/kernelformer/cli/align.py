"""kernelformer align: the kernels of a classifier as particles that align with labels (phase A)."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from kernelformer.cli.convert import parse_numbers, parse_options, resumable
from kernelformer.cli.options import (
    BatchSize,
    Config,
    Data,
    DryRun,
    GroupColumn,
    HeldOut,
    KeepLabel,
    LabelColumn,
    Layers,
    MaxLength,
    Model,
    MoreData,
    NumFeatures,
    Option,
    Overwrite,
    Seed,
    SharedQk,
    TextColumn,
)

__all__ = ["align", "execute"]


def align(
    model: Model,
    label_column: LabelColumn,
    more_data: MoreData = None,
    data: Data = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "aligned",
    config: Config = None,
    kernel: Annotated[
        str | None, typer.Option(help="A kernel with projections; softmaxfeat where MODEL has none yet.")
    ] = None,
    num_features: NumFeatures = None,
    option: Option = None,
    layers: Layers = None,
    shared_qk: SharedQk = False,
    text_column: TextColumn = "text",
    group_column: GroupColumn = None,
    keep_label: KeepLabel = None,
    held_out: HeldOut = None,
    max_length: MaxLength = 128,
    batch_size: BatchSize = 64,
    steps: Annotated[int, typer.Option(help="Steps of the dynamics.")] = 300,
    level: Annotated[str, typer.Option(help="What aligns: sequence (mean-pooled outputs) or token.")] = "sequence",
    normalised: Annotated[
        bool, typer.Option(help="Centred alignment, blind to the size of outputs; or the paper's sum over pairs.")
    ] = True,
    also: Annotated[str, typer.Option(help='What moves besides: nothing, or "norms and values".')] = "nothing",
    learning_rate: Annotated[float, typer.Option(help="Rate of norms and values.")] = 1e-3,
    step_size: Annotated[float, typer.Option(help="η of the dynamics (the paper's: 2e-3).")] = 10.0,
    inverse_temperature: Annotated[float, typer.Option(help="β (the paper's: 50); inf is without noise.")] = 1e6,
    exponent: Annotated[float, typer.Option(help="s of the repulsion; 0 is logarithmic.")] = 0.0,
    repulsion_weight: Annotated[float, typer.Option(help="λ; 0 is without repulsion.")] = 1e-3,
    max_norm: Annotated[float, typer.Option(help="Radius of the ball of particles (the paper's: 1.5).")] = 12.0,
    max_drift: Annotated[float, typer.Option(help="What a particle's drift is clipped to (the paper's: 10).")] = 0.1,
    tolerance: Annotated[float, typer.Option(help="Stop when particles move less in a step; 0 never does.")] = 0.0,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Move the particles of every head and layer toward alignment with labels; all else stays as it is.

    Writes a model folder that kernelformer.load(OUTPUT) and kernelformer train read, and report.json. Interrupted, the
    same command goes on where it stopped.
    """
    from kernelformer.cli.settings import ClassifierSettings

    settings = ClassifierSettings(
        verb="align",
        model=model,
        data=[*(data or []), *(more_data or [])],
        output=output,
        label_column=label_column,
        config=config,
        kernel=kernel,
        num_features=num_features,
        options=parse_options(option or []),
        layers=None if layers is None else parse_numbers("--layers", layers),
        shared_qk=shared_qk,
        text_column=text_column,
        group_column=group_column,
        keep_labels=keep_label or None,
        held_out=held_out,
        max_length=max_length,
        batch_size=batch_size,
        seed=seed,
        steps=steps,
        level=level,
        normalised=normalised,
        also=also,
        learning_rate=learning_rate,
        step_size=step_size,
        inverse_temperature=inverse_temperature,
        exponent=exponent,
        repulsion_weight=repulsion_weight,
        max_norm=max_norm,
        max_drift=max_drift,
        tolerance=tolerance,
    )
    record = execute(settings, overwrite=overwrite, dry_run=dry_run)
    if record is not None:
        energy, pair = record["held_out_energy"], record["nearest_pair"]
        print(f"energy of alignment on validation texts  {energy['before']:.5f} -> {energy['after']:.5f}")
        print(f"nearest pair of particles                {pair['before']:.4f} -> {pair['after']:.4f}")
        print(f"particles moved by                       {record['mean_move']:.4f} on average")


def execute(settings: Any, *, overwrite: bool, dry_run: bool) -> dict[str, Any] | None:
    """Prepare and run ``align`` or ``train``, telling steps on stderr; None after a dry run."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from rich.console import Console

    from kernelformer.cli.classifying import describe, prepare, run

    told = Console(stderr=True, highlight=False)
    with resumable():
        prepared = prepare(settings)
        if dry_run:
            Console(highlight=False, markup=False).print(describe(prepared))
            return None
        record = run(prepared, told.print, overwrite=overwrite)
    told.print(f"written: {settings.output} (model folder, report.json)")
    return record
