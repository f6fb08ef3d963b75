"""kernelformer import-gguf: a GGUF file as a model folder."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["import_gguf"]


def import_gguf(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A .gguf file.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to write.")],
) -> None:
    """Write the decoder in a GGUF file as a folder of bfloat16 safetensors, which every other verb reads at once."""
    from kernelformer.cli.convert import resumable
    from kernelformer.hf.gguf import import_gguf as write

    with resumable():
        folder = write(source, output)
    print(folder)
