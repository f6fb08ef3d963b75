"""Time against length on logarithmic axes, with floors and rivals drawn in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["plot_engine"]


def plot_engine(result: dict[str, Any], path: Path) -> None:
    """Write one panel a form; the file's ending names its format."""
    forms = list(dict.fromkeys(row["form"] for row in result["rows"]))
    figure = Figure(figsize=(4.5 * len(forms), 4.0), layout="constrained")
    panels = figure.subplots(1, len(forms), squeeze=False)[0]
    for form, axes in zip(forms, panels, strict=True):
        _panel(axes, [row for row in result["rows"] if row["form"] == form])
        axes.set_title(form)
    figure.savefig(path)


def _panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    for number, kernel in enumerate(kernels):
        own = sorted((row for row in rows if row["kernel"] == kernel), key=lambda row: row["length"])
        lengths = [row["length"] for row in own]
        colour = f"C{number}"
        axes.plot(lengths, [1000 * row["seconds"] for row in own], "o-", color=colour, label=kernel)
        axes.plot(lengths, [1000 * row["floor"] for row in own], ":", color=colour, label=f"{kernel}, floor")
    for number, name in enumerate(rows[0]["rivals"]):
        points = [
            (row["length"], 1000 * row["rivals"][name])
            for row in rows
            if row["kernel"] == kernels[0] and not isinstance(row["rivals"][name], str)
        ]
        if points:
            axes.plot(*zip(*sorted(points), strict=True), "s--", color=f"C{len(kernels) + number}", label=name)
    axes.set(xscale="log", yscale="log", xlabel="N", ylabel="ms")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
