"""Time or memory against length on logarithmic axes, with floors and rivals drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from kernelformer.bench.drawing import PALETTE

__all__ = ["plot_memory", "plot_time"]

# Of the palette's colours those before its grey; greys are the rivals'.
_KERNELS: Final = PALETTE[:6]
_RIVALS: Final = (("#000000", "s"), ("#777777", "^"), ("#777777", "v"), ("#444444", "D"))


def plot_time(result: dict[str, Any], path: Path) -> None:
    """Write one panel a form, milliseconds against N; the file's ending names its format."""
    scaled = [
        {**row, "own": 1000 * row["seconds"], "least": 1000 * row["floor"], "others": _scaled(row["rivals"])}
        for row in result["rows"]
    ]
    _plot(scaled, result["setting"]["rivals"], "ms", path)


def plot_memory(result: dict[str, Any], path: Path) -> None:
    """The same for MiB, of rows measured with memory."""
    rows = [row for row in result["rows"] if isinstance(row["mib"], float)]
    shown = [{**row, "own": row["mib"], "least": row["floor_mib"], "others": row["rivals_mib"]} for row in rows]
    _plot(shown, result["setting"]["rivals"], "MiB", path)


def _scaled(rivals: dict[str, float | str]) -> dict[str, float | str]:
    return {name: value if isinstance(value, str) else 1000 * value for name, value in rivals.items()}


def _plot(rows: list[dict[str, Any]], rivals: Sequence[str], unit: str, path: Path) -> None:
    forms = list(dict.fromkeys(row["form"] for row in rows))
    columns = min(len(forms), 2)
    lines = -(-len(forms) // columns)
    # A fixed salt: the same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "kernelformer", "svg.fonttype": "none"}):
        figure = Figure(figsize=(4.6 * columns, 3.6 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).flat
        for form, axes in zip(forms, panels, strict=False):
            _panel(axes, [row for row in rows if row["form"] == form], rivals)
            axes.set(title=form, ylabel=unit)
        for axes in list(panels)[len(forms) :]:
            axes.set_axis_off()
        handles = {
            label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axes: Axes, rows: list[dict[str, Any]], rivals: Sequence[str]) -> None:
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    for number, kernel in enumerate(kernels):
        own = sorted((row for row in rows if row["kernel"] == kernel), key=lambda row: row["length"])
        lengths = [row["length"] for row in own]
        colour = _KERNELS[number % len(_KERNELS)]
        axes.plot(lengths, [row["own"] for row in own], "o-", color=colour, ms=4, label=kernel)
        axes.plot(lengths, [row["least"] for row in own], ":", color=colour, label=f"floor of {kernel}")
    for number, name in enumerate(rivals):
        points = [
            (row["length"], row["others"][name])
            for row in rows
            if row["kernel"] == kernels[0] and isinstance(row["others"].get(name), float)
        ]
        if points:
            colour, marker = _RIVALS[number % len(_RIVALS)]
            axes.plot(*zip(*sorted(points), strict=True), f"{marker}--", color=colour, ms=4, lw=1, label=name)
    axes.set(xscale="log", yscale="log", xlabel="N")
    axes.set_xticks(sorted({row["length"] for row in rows}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=99))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, alpha=0.3)
