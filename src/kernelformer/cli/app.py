"""The command line's verbs, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from kernelformer.cli.align import align
from kernelformer.cli.bench import bench
from kernelformer.cli.compare import compare
from kernelformer.cli.convert import convert
from kernelformer.cli.demo import demo
from kernelformer.cli.doctor import doctor
from kernelformer.cli.eval import evaluate
from kernelformer.cli.explain import explain
from kernelformer.cli.generate import generate
from kernelformer.cli.import_gguf import import_gguf
from kernelformer.cli.list import list_kernels
from kernelformer.cli.report import report
from kernelformer.cli.reproduce import reproduce
from kernelformer.cli.train import train
from kernelformer.cli.verb import verb

__all__ = ["app"]

_VERBS: dict[str, dict[str, Callable[..., Any]]] = {
    "Models": {
        "convert": convert,
        "compare": compare,
        "align": align,
        "train": train,
        "eval": evaluate,
        "generate": generate,
        "import-gguf": import_gguf,
        "demo": demo,
    },
    "Kernels and this machine": {"list": list_kernels, "explain": explain, "bench": bench, "doctor": doctor},
    "Results": {"reproduce": reproduce, "report": report},
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from kernelformer import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def kernelformer(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Linear-time attention whose kernel is learned.

    Exit codes: 0 done, 1 interrupted or broken, 2 asked for what cannot be.
    """


for panel, verbs in _VERBS.items():
    for name, function in verbs.items():
        app.command(name, rich_help_panel=panel)(verb(function))
