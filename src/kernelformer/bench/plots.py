"""The plots of a report, as SVG to stand inside a page.

Colours are the page's, by CSS variables (--ink, --faint, --softmax, --kernel, --third), so that one plot suits light
and dark. The page takes them from Okabe and Ito's palette, told apart with any colour vision; lines differ by
marker and dash and bars by hatching, too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator, PercentFormatter

from kernelformer.bench.record import LayerError

__all__ = [
    "Banded",
    "Line",
    "plot_bands",
    "plot_conditions",
    "plot_cosines",
    "plot_errors",
    "plot_losses",
    "plot_ranking",
    "plot_scaling",
    "standalone",
]

# Stand-ins that matplotlib writes into the SVG, and what they become.
_INK, _FAINT, _SOFTMAX, _KERNEL, _THIRD = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _SOFTMAX: "var(--softmax)",
    _KERNEL: "var(--kernel)",
    _THIRD: "var(--third)",
}
_STYLE: Final[Any] = {
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "hatch.color": _INK,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
# Narrow, because a telephone shows it some 350 pixels wide and the letters must stay readable.
_SIZE: Final = (4.1, 2.8)

_PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
_DASHES: Final = ("-", "--", "-.", ":", "-", "--", "-.", ":")

Line = Sequence[tuple[float, float]]
"""Points (x, y)."""

Banded = tuple[str, Sequence[tuple[float, float] | None]]
"""A name and points (mean, half of the band)."""


def plot_errors(layers: Sequence[LayerError]) -> str:
    """Bars: the error of each layer at the start and after each stage."""
    stages: list[tuple[str, list[float | None], str, str]] = [
        ("start", [layer["error_start"] for layer in layers], _FAINT, "///"),
        ("distilled", [layer["error_distilled"] for layer in layers], _THIRD, "..."),
        ("finetuned", [layer["error_finetuned"] for layer in layers], _KERNEL, ""),
    ]
    shown = [stage for stage in stages if any(error is not None for error in stage[1])]
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        width = 0.8 / len(shown)
        for place, (name, errors, colour, hatch) in enumerate(shown):
            heights = [np.nan if error is None else error for error in errors]
            left = np.arange(len(layers)) + (place - (len(shown) - 1) / 2) * width
            axes.bar(left, heights, width, label=name, color=colour, hatch=hatch, edgecolor=_INK, linewidth=0.5)
        axes.set_xticks(range(len(layers)), [str(layer["layer"]) for layer in layers])
        axes.set(xlabel="layer", ylabel="relative output error")
        axes.grid(visible=False, axis="x")
        _legend(figure, axes)
        return _svg(figure, "errors")


def plot_scaling(softmax: Line | None, kernel: Line | None, unit: str, crossover: float | None = None) -> str:
    """Both sides against N, both axes logarithmic; points at or below zero are left out.

    Args:
        softmax, kernel: one of them may be None, unknown.
        unit: the label of the y axis.
        crossover: N at which a line is drawn.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        for line, name, colour, marker, dash in (
            (softmax, "softmax", _SOFTMAX, "s", "--"),
            (kernel, "kernel", _KERNEL, "o", "-"),
        ):
            points = [(x, y) for x, y in line or () if y > 0]
            if points:
                axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker, ls=dash, ms=4.5)
        lengths = [x for x, _ in softmax or kernel or ()]
        axes.set_xscale("log", base=2)
        _log_y(axes)
        axes.xaxis.set_major_locator(FixedLocator(lengths))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([_short(length) for length in lengths])
        axes.set(xlabel="tokens N", ylabel=unit)
        if crossover is not None:
            axes.axvline(crossover, color=_INK, lw=1.4, ls=":", label=f"crossover at {crossover:,.0f}")
        _legend(figure, axes)
        return _svg(figure, unit)


def plot_losses(stage: str, losses: Line) -> str:
    """The loss of one stage by step, logarithmic where all are positive."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        axes.plot(*zip(*losses, strict=True), color=_KERNEL, lw=1.2, marker="o" if len(losses) < 3 else None)
        if all(loss > 0 for _, loss in losses):
            _log_y(axes)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set(xlabel="step", ylabel="loss")
        return _svg(figure, f"losses {stage}")


def plot_cosines(cosines: Sequence[float]) -> str:
    """Histogram of the cosine between teacher's and student's embedding of each text."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        axes.hist(cosines, bins=40, weights=np.full(len(cosines), 1 / len(cosines)), color=_KERNEL)
        mean = sum(cosines) / len(cosines)
        axes.axvline(mean, color=_INK, lw=1.4, ls=":", label=f"mean {mean:.4f}")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], min_n_ticks=3))
        axes.set(xlabel="cosine with the teacher", ylabel="share of texts")
        _legend(figure, axes)
        return _svg(figure, "cosines")


def plot_ranking(rows: Sequence[tuple[str, float, float]]) -> str:
    """Bars of (name, value, spread), the first on top."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_SIZE[0], 0.7 + 0.22 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        names, values, spreads = zip(*rows, strict=True)
        places = range(len(rows))
        axes.barh(places, values, xerr=spreads if any(spreads) else None, color=_KERNEL, edgecolor=_INK, linewidth=0.5)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set(xlabel="relative output error after distillation")
        axes.grid(visible=False, axis="y")
        return _svg(figure, "ranking")


def plot_conditions(lines: Sequence[tuple[str, Line]], ylabel: str) -> str:
    """Lines against the condition number, each with a name, colour and marker of its own."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_SIZE[0], 3.6), layout="constrained")
        axes = figure.add_subplot()
        for (name, points), colour, marker in zip(lines, _PALETTE, "osD^vP*X", strict=False):
            axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker, ms=4.5, lw=1.4)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator([x for x, _ in lines[0][1]]))
        axes.set_xticklabels([f"{x:g}" for x, _ in lines[0][1]])
        axes.xaxis.set_minor_locator(NullLocator())
        _log_y(axes)
        axes.set(xlabel="condition number of the covariance", ylabel=ylabel)
        figure.legend(loc="outside upper center", ncols=2, handlelength=2, columnspacing=1)
        return _svg(figure, ylabel)


def plot_bands(lines: Sequence[Banded], ticks: Sequence[str], xlabel: str, ylabel: str) -> str:
    """Shares with bands over equally spaced places, a line each with its name, colour, marker and dash, at most 8.

    Args:
        lines: a name, and for each place a mean and half the height of the band, or None where nothing was measured.
            Bands end at 0.
        ticks: names of the places.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.0, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for (name, points), colour, marker, dash in zip(lines, _PALETTE, "osD^vP*X", _DASHES, strict=False):
            places = [place for place, point in enumerate(points) if point is not None]
            means, halves = np.array([point for point in points if point is not None]).T
            axes.fill_between(places, np.maximum(means - halves, 0.0), means + halves, color=colour, alpha=0.15, lw=0)
            axes.plot(places, means, label=name, color=colour, marker=marker, ls=dash, ms=4.5, lw=1.4)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        figure.legend(loc="outside upper center", ncols=2, handlelength=3, columnspacing=1)
        return _svg(figure, f"{xlabel} {ylabel}")


def standalone(svg: str) -> str:
    """A plot as a file of its own: the page's colours and a white ground put in."""
    colours = "--ink:#1d2328;--faint:#d8dde2;--softmax:#0072b2;--kernel:#d55e00;--third:#009e73"
    opened = svg.index(">") + 1
    return f"{svg[:opened]}<style>svg{{{colours};background:#fff}}</style>{svg[opened:]}"


def _axes() -> tuple[Figure, Axes]:
    # No pyplot: it would keep the figure and choose a window system.
    figure = Figure(figsize=_SIZE, layout="constrained")
    return figure, figure.add_subplot()


def _log_y(axes: Axes) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    # Within a decade or two, powers of ten alone would leave an axis with one number or none.
    steps = (1, 2, 5) if high < 200 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), handlelength=2, columnspacing=1)


def _short(length: float) -> str:
    return f"{length / 1024:g}k" if length >= 1024 else f"{length:g}"


def _svg(figure: Figure, name: str) -> str:
    """The figure as an <svg> element, the same bytes for the same data, with ids of its own."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Names like "axes_1" are in every figure; ids that are referred to are hashes, salted by the name.
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)
    # The page sets the width; the viewBox keeps the shape.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text
