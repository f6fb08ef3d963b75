"""kernelformer import-gguf: a GGUF file as a model folder."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelformer.cli.options import Output
from kernelformer.cli.verb import Answer, resumable

__all__ = ["import_gguf"]


def import_gguf(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A .gguf file.")],
    output: Output,
) -> Answer:
    """Write the decoder in a GGUF file as a folder of bfloat16 safetensors, which every other verb reads at once."""
    from kernelformer.hf.gguf import import_gguf as write

    with resumable():
        folder = write(source, output)
    return Answer({"folder": str(folder)}, (str(folder),), folder)
