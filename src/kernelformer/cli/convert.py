"""kernelformer convert: a pretrained encoder or decoder to linear-time attention with a learned kernel."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from kernelformer.cli.options import (
    BatchSize,
    Data,
    DryRun,
    GroupColumn,
    KeepLabel,
    Layers,
    MaxLength,
    MoreData,
    NumFeatures,
    Option,
    TextColumn,
)
from kernelformer.errors import KernelformerError

__all__ = ["convert"]


def convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder or hub name of a Hugging Face encoder or decoder.")
    ],
    more_data: MoreData = None,
    data: Data = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "converted",
    kernel: Annotated[
        str, typer.Option(help='A kernel ("kernelformer list" names them), or module:Class.')
    ] = "hedgehog",
    num_features: NumFeatures = None,
    option: Option = None,
    layers: Layers = None,
    window: Annotated[
        int, typer.Option(help="Decoders: exact softmax over the last so many tokens, the kernel before.")
    ] = 0,
    test_data: Annotated[
        list[str] | None, typer.Option(help="Text to judge by, in the place of held-out texts. Repeatable.")
    ] = None,
    text_column: TextColumn = "text",
    label_column: Annotated[str | None, typer.Option(help="Column with labels, for a linear probe.")] = None,
    keep_label: KeepLabel = None,
    group_column: GroupColumn = None,
    held_out: Annotated[
        int | None, typer.Option(help="Texts to hold out; a tenth, at most 1,000, if left out.")
    ] = None,
    max_length: MaxLength = 128,
    finetune: Annotated[str, typer.Option(help="What to train after the kernels: none, kernels, qkv or all.")] = "all",
    distill_steps: Annotated[int, typer.Option(help="Steps of layer-wise distillation.")] = 150,
    finetune_steps: Annotated[int, typer.Option(help="Steps of training the student.")] = 1000,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Peak rate of the model's weights.")] = 3e-4,
    kernel_learning_rate: Annotated[
        float | None, typer.Option(help="Peak rate of kernels; the kernel's own if left out.")
    ] = None,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the split, the kernels' draws and the order of texts.")] = 0,
    measure: Annotated[bool, typer.Option(help="Measure time and memory of teacher and student.")] = True,
    overwrite: Annotated[bool, typer.Option(help="Replace a finished conversion in the output folder.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Swap a model's softmax attention for a learned kernel, distil it on your text, and report what is kept.

    Writes a model folder that kernelformer.load(OUTPUT) reads, report.json and report.html. Interrupted, the same
    command goes on where it stopped.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from kernelformer.cli.settings import ConvertSettings

    settings = ConvertSettings(
        model=model,
        data=[*(data or []), *(more_data or [])],
        output=output,
        kernel=kernel,
        num_features=num_features,
        options=parse_options(option or []),
        layers=None if layers is None else parse_numbers("--layers", layers),
        window=window,
        test_data=test_data or [],
        text_column=text_column,
        label_column=label_column,
        group_column=group_column,
        keep_labels=keep_label or None,
        held_out=held_out,
        max_length=max_length,
        finetune=finetune,
        distill_steps=distill_steps,
        finetune_steps=finetune_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        kernel_learning_rate=kernel_learning_rate,
        precision=precision,
        seed=seed,
        measure=measure,
    )
    execute(settings, overwrite=overwrite, dry_run=dry_run)


@contextmanager
def resumable() -> Iterator[None]:
    """Leave the terminal to this command, and say how to go on when it is interrupted (exit code 1)."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    except KeyboardInterrupt:
        print("kernelformer: interrupted; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(1) from None


def execute(settings: Any, *, overwrite: bool, dry_run: bool) -> None:
    """Prepare and run a conversion, telling its steps on stderr and its results on stdout."""
    from rich.console import Console

    from kernelformer.bench.report import summary_table
    from kernelformer.cli.pipeline import describe, prepare, run

    told = Console(stderr=True, highlight=False)
    with resumable():
        prepared = prepare(settings)
        if dry_run:
            Console(highlight=False).print(describe(prepared))
            return
        record = run(prepared, told.print, overwrite=overwrite)
    Console().print(summary_table(record))
    told.print(f"written: {settings.output} (model folder, report.json, report.html)")


def parse_options(given: list[str]) -> dict[str, Any]:
    """["floor=0.1", "phase=True"] -> {"floor": 0.1, "phase": True}; a value that is no Python literal is a string."""
    parsed: dict[str, Any] = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator or not name.isidentifier():
            raise KernelformerError(f"--option is name=value, got {item!r}")
        try:
            parsed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[name] = value
    return parsed


def parse_numbers(name: str, given: str) -> list[int]:
    """ "0,2,5" -> [0, 2, 5]; ``name`` is the option's, for the error."""
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as error:
        raise KernelformerError(f"{name} is numbers with commas, as 0,2,5, got {given!r}") from error
