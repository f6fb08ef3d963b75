"""kernelformer train: a text classifier by cross-entropy, its kernels frozen or not (phase B, or plain training)."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelformer.cli.align import execute
from kernelformer.cli.convert import parse_numbers, parse_options
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

__all__ = ["train"]


def train(
    model: Model,
    label_column: LabelColumn,
    more_data: MoreData = None,
    data: Data = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "trained",
    config: Config = None,
    kernel: Annotated[
        str | None, typer.Option(help="Convert to this kernel first (softmax too); MODEL's own attention if left out.")
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
    epochs: Annotated[int, typer.Option(help="Passes through the training texts; the best one is kept.")] = 3,
    learning_rate: Annotated[float, typer.Option(help="Peak rate of the weights.")] = 1e-3,
    train_kernels: Annotated[bool, typer.Option(help="Train kernels as well; they are frozen if not.")] = False,
    kernel_learning_rate: Annotated[float, typer.Option(help="Peak rate of kernels.")] = 1e-2,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Train a classifier, aligned before or not, with any kernel or softmax; weights are selected on validation texts.

    Writes a model folder, and report.json with the metrics of texts that neither training nor selection saw.
    Interrupted, the same command goes on where it stopped.
    """
    from kernelformer.cli.settings import ClassifierSettings

    settings = ClassifierSettings(
        verb="train",
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
        epochs=epochs,
        learning_rate=learning_rate,
        train_kernels=train_kernels,
        kernel_learning_rate=kernel_learning_rate,
        precision=precision,
    )
    record = execute(settings, overwrite=overwrite, dry_run=dry_run)
    if record is not None:
        print(f"{'test texts':<18} {record['test'].pop('texts'):,}")
        for name, value in record["test"].items():
            if value is not None:
                print(f"{name.replace('_', ' '):<18} {value:.4f}")
