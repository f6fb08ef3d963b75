"""The command line's verbs, put together."""

from __future__ import annotations

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
from kernelformer.cli.reproduce import reproduce
from kernelformer.cli.train import train

__all__ = ["app"]

app = typer.Typer(
    help="Linear-time attention whose kernel is learned.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("convert")(convert)
app.command("bench")(bench)
app.command("compare")(compare)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.command("eval")(evaluate)
app.command("explain")(explain)
app.command("generate")(generate)
app.command("import-gguf")(import_gguf)
app.command("list")(list_kernels)
app.command("align")(align)
app.command("train")(train)
app.command("reproduce")(reproduce)
