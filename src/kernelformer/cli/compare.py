"""kernelformer compare: which kernel to choose for a model and a text."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from kernelformer.cli.convert import parse_numbers, resumable
from kernelformer.cli.options import BatchSize, GroupColumn, MaxLength, MoreData, TextColumn

__all__ = ["compare", "rank"]


def compare(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder or hub name of a Hugging Face encoder.")],
    more_data: MoreData = None,
    data: Annotated[list[str] | None, typer.Option(help="Text, as for convert. Repeatable.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "compared",
    kernels: Annotated[str | None, typer.Option(help="Kernels with commas; all if left out.")] = None,
    num_features: Annotated[int, typer.Option(help="Features M of every kernel whose width is free.")] = 64,
    seeds: Annotated[str, typer.Option(help="Seeds with commas; figures are means over them.")] = "0",
    text_column: TextColumn = "text",
    group_column: GroupColumn = None,
    label_column: Annotated[str | None, typer.Option(help="Column with labels, for a linear probe.")] = None,
    held_out: Annotated[
        int | None, typer.Option(help="Texts to hold out; a tenth, at most 1,000, if left out.")
    ] = None,
    max_length: MaxLength = 128,
    finetune: Annotated[str, typer.Option(help="What to train after the kernels: none, kernels, qkv or all.")] = "none",
    distill_steps: Annotated[int, typer.Option(help="Steps of layer-wise distillation.")] = 150,
    finetune_steps: Annotated[int, typer.Option(help="Steps of training the student.")] = 1000,
    batch_size: BatchSize = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Distil every kernel at equal width on one model, and rank them by what they keep of its attention.

    Each lands in OUTPUT/KERNEL-SEED; compare.json and compare.svg hold the ranking. Interrupted, the same command
    goes on.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from kernelformer.cli.settings import ConvertSettings
    from kernelformer.feature_maps import FEATURE_MAPS

    settings = ConvertSettings(
        model=model,
        data=[*(data or []), *(more_data or [])],
        output=output,
        num_features=num_features,
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
    rank(settings, names, parse_numbers("--seeds", seeds), as_json=as_json)


def rank(settings: Any, names: list[str], seeds: list[int], *, as_json: bool = False) -> None:
    """Compare kernels, telling the steps on stderr and the ranking on stdout."""
    import json

    from rich.console import Console

    from kernelformer.cli.comparing import compare as compare_kernels
    from kernelformer.cli.comparing import ranking_table

    with resumable():
        rows = compare_kernels(settings, names, seeds, Console(stderr=True, highlight=False).print)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(ranking_table(rows))
