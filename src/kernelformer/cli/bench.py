"""kernelformer bench: time and memory of attention on this machine, beside floors and rivals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelformer.cli.options import parse_numbers
from kernelformer.cli.verb import Answer, Terminal
from kernelformer.errors import KernelformerError

__all__ = ["bench"]


def bench(
    terminal: Terminal,
    forms: Annotated[
        str,
        typer.Option(help="Forms to time, with commas: bidirectional, causal, training (causal with gradients), step."),
    ] = "bidirectional,causal,training,step",
    lengths: Annotated[str, typer.Option(help="Lengths N, with commas.")] = "512,1024,4096,16384",
    kernels: Annotated[
        str, typer.Option(help='Kernels, with commas ("kernelformer list" names them).')
    ] = "hedgehog,favor,flexformer_n",
    rivals: Annotated[
        str,
        typer.Option(
            help="Rivals, with commas: sdpa, performer-pytorch, fast-transformers, flash-linear-attention; or none."
        ),
    ] = "sdpa,performer-pytorch,fast-transformers,flash-linear-attention",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    num_features: Annotated[int, typer.Option(help="Features M of the kernels.")] = 128,
    num_heads: Annotated[int, typer.Option(help="Heads H.")] = 8,
    head_dim: Annotated[int, typer.Option(help="Width D of a head.")] = 64,
    threads: Annotated[int | None, typer.Option(help="CPU threads; torch's choice if left out.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds that the times of a row may take, roughly.")] = 3.0,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure peak memory, too, each method in its own process.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Folder for bench.json and the plots; none if left out.")
    ] = None,
) -> Answer:
    """Measure attention here: medians, each over the floor that no method with M features can beat, and against rivals.

    Rivals that are not installed are named, with what to install.
    """
    import torch

    from kernelformer.bench.engine import Setting, measure

    if threads is not None and threads < 1:
        raise KernelformerError(f"--threads must be at least 1, got {threads}")
    setting = Setting(
        forms=tuple(forms.split(",")),
        lengths=tuple(parse_numbers("--lengths", lengths)),
        kernels=tuple(kernels.split(",")),
        rivals=() if rivals in ("", "none") else tuple(rivals.split(",")),
        dtype=dtype,
        num_heads=num_heads,
        head_dim=head_dim,
        num_features=num_features,
        seconds=seconds,
        memory=memory,
        device=device,
    )
    if threads is not None:
        torch.set_num_threads(threads)
    with terminal.console.status("measuring") as status:
        result = measure(setting, lambda what: status.update(f"measuring: {what}"))
    folder = None if output is None else Path(output)
    if folder is not None:
        _write(result, folder)
    return Answer(result, _shown(result), folder)


def _shown(result: dict[str, Any]) -> tuple[Any, ...]:
    from rich.table import Table

    from kernelformer.bench.engine_table import reasons, tables

    parts: list[Any] = [f"{result['machine']}; {result['threads']} threads, torch {result['torch']}"]
    for found in tables(result):
        shown = Table(title=found.title, title_justify="left", box=None, header_style="bold")
        for head in found.heads:
            shown.add_column(head, justify="left" if head in ("form", "kernel") else "right")
        for row in found.rows:
            shown.add_row(*row)
        parts.append(shown)
    return (*parts, *(f"– {reason}" for reason in reasons(result)))


def _write(result: dict[str, Any], folder: Path) -> None:
    # matplotlib is not needed for the tables.
    from kernelformer.bench.engine_plot import plot_memory, plot_time

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    plot_time(result, folder / "bench-time.svg")
    if result["setting"]["memory"]:
        plot_memory(result, folder / "bench-memory.svg")
