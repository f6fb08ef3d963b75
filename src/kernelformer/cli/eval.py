"""kernelformer eval: how well a decoder predicts text."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelformer.cli.options import Data, OwnKernel, TextColumn
from kernelformer.cli.verb import Answer, resumable

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder or hub name of a decoder, converted or not.")],
    data: Data = [],  # noqa: B006  (typer's way to say none; nothing changes it)
    text_column: TextColumn = "text",
    max_length: Annotated[int, typer.Option(help="Tokens a block; a text is cut into blocks.")] = 512,
    most_blocks: Annotated[int, typer.Option(help="Blocks to look at, from the start of the data.")] = 256,
    batch_size: Annotated[int, typer.Option(help="Blocks at once.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and the recall probe.")] = 0,
    own_kernel: OwnKernel = None,
) -> Answer:
    """Measure how well a decoder predicts text.

    Perplexity with its interval, next-token accuracy, perplexity by position, and recall at growing distance.
    """
    from rich.table import Table

    from kernelformer.cli.work import check_data
    from kernelformer.hf.read import read_decoder, read_tokenizer
    from kernelformer.tasks.language import likelihood, recall, token_blocks
    from kernelformer.tasks.text import load_texts

    with resumable():
        check_data(data)
        corpus = load_texts(data, text_column=text_column)
        tokenizer = read_tokenizer(model)
        blocks = token_blocks(tokenizer, corpus.texts, max_length).first(most_blocks)
        decoder = read_decoder(model, own_kernel=own_kernel)
        found = likelihood(decoder, blocks, batch_size=batch_size, seed=seed)
        remembered = recall(decoder, blocks, seed=seed)
    low, high = found["perplexity_ci"]
    table = Table(box=None, show_header=False)
    table.add_row(
        "perplexity", f"{found['perplexity']:.3f}", f"95 % {low:.3f} … {high:.3f}, {found['tokens']:,} tokens"
    )
    table.add_row("next token right", f"{found['accuracy']:.1%}")
    for first, last, value in found["buckets"]:
        table.add_row(f"perplexity at {first:,} … {last - 1:,}", f"{value:.3f}")
    for distance, right, novel in zip(
        remembered["distances"], remembered["accuracy"], remembered["novel"], strict=True
    ):
        table.add_row(f"recall after {distance:,} tokens", f"{right:.1%}", f"{novel:.1%} at first sight")
    return Answer({"likelihood": found, "recall": remembered}, (table,))
