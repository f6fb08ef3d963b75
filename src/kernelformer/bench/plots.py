"""The plots of a report, as SVG to stand inside a page."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from kernelformer.bench.drawing import (
    DASHES,
    FAINT,
    INK,
    KERNEL,
    PALETTE,
    SIZE,
    SOFTMAX,
    STYLE,
    THIRD,
    as_svg,
    legend_above,
    log_y,
    new_axes,
    short_length,
)
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
]

Line = Sequence[tuple[float, float]]
"""Points (x, y)."""

Banded = tuple[str, Sequence[tuple[float, float] | None]]
"""A name and points (mean, half of the band)."""


def plot_errors(layers: Sequence[LayerError]) -> str:
    """Bars: the error of each layer at the start and after each stage."""
    stages: list[tuple[str, list[float | None], str, str]] = [
        ("start", [layer["error_start"] for layer in layers], FAINT, "///"),
        ("distilled", [layer["error_distilled"] for layer in layers], THIRD, "..."),
        ("finetuned", [layer["error_finetuned"] for layer in layers], KERNEL, ""),
    ]
    shown = [stage for stage in stages if any(error is not None for error in stage[1])]
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        width = 0.8 / len(shown)
        for place, (name, errors, colour, hatch) in enumerate(shown):
            heights = [np.nan if error is None else error for error in errors]
            left = np.arange(len(layers)) + (place - (len(shown) - 1) / 2) * width
            axes.bar(left, heights, width, label=name, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.5)
        axes.set_xticks(range(len(layers)), [str(layer["layer"]) for layer in layers])
        axes.set(xlabel="layer", ylabel="relative output error")
        axes.grid(visible=False, axis="x")
        legend_above(figure, axes)
        return as_svg(figure, "errors")


def plot_scaling(softmax: Line | None, kernel: Line | None, unit: str, crossover: float | None = None) -> str:
    """Both sides against N, both axes logarithmic; points at or below zero are left out.

    Args:
        softmax, kernel: one of them may be None, unknown.
        unit: the label of the y axis.
        crossover: N at which a line is drawn.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        for line, name, colour, marker, dash in (
            (softmax, "softmax", SOFTMAX, "s", "--"),
            (kernel, "kernel", KERNEL, "o", "-"),
        ):
            points = [(x, y) for x, y in line or () if y > 0]
            if points:
                axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker, ls=dash, ms=4.5)
        lengths = [x for x, _ in softmax or kernel or ()]
        axes.set_xscale("log", base=2)
        log_y(axes)
        axes.xaxis.set_major_locator(FixedLocator(lengths))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([short_length(length) for length in lengths])
        axes.set(xlabel="tokens N", ylabel=unit)
        if crossover is not None:
            axes.axvline(crossover, color=INK, lw=1.4, ls=":", label=f"crossover at {crossover:,.0f}")
        legend_above(figure, axes)
        return as_svg(figure, unit)


def plot_losses(stage: str, losses: Line) -> str:
    """The loss of one stage by step, logarithmic where all are positive."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        axes.plot(*zip(*losses, strict=True), color=KERNEL, lw=1.2, marker="o" if len(losses) < 3 else None)
        if all(loss > 0 for _, loss in losses):
            log_y(axes)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set(xlabel="step", ylabel="loss")
        return as_svg(figure, f"losses {stage}")


def plot_cosines(cosines: Sequence[float]) -> str:
    """Histogram of the cosine between teacher's and student's embedding of each text."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        axes.hist(cosines, bins=40, weights=np.full(len(cosines), 1 / len(cosines)), color=KERNEL)
        mean = sum(cosines) / len(cosines)
        axes.axvline(mean, color=INK, lw=1.4, ls=":", label=f"mean {mean:.4f}")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], min_n_ticks=3))
        axes.set(xlabel="cosine with the teacher", ylabel="share of texts")
        legend_above(figure, axes)
        return as_svg(figure, "cosines")


def plot_ranking(rows: Sequence[tuple[str, float, float]]) -> str:
    """Bars of (name, value, spread), the first on top."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], 0.7 + 0.22 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        names, values, spreads = zip(*rows, strict=True)
        places = range(len(rows))
        axes.barh(places, values, xerr=spreads if any(spreads) else None, color=KERNEL, edgecolor=INK, linewidth=0.5)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set(xlabel="relative output error after distillation")
        axes.grid(visible=False, axis="y")
        return as_svg(figure, "ranking")


def plot_conditions(lines: Sequence[tuple[str, Line]], ylabel: str) -> str:
    """Lines against the condition number, each with a name, colour and marker of its own."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], 3.6), layout="constrained")
        axes = figure.add_subplot()
        for (name, points), colour, marker in zip(lines, PALETTE, "osD^vP*X", strict=False):
            axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker, ms=4.5, lw=1.4)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator([x for x, _ in lines[0][1]]))
        axes.set_xticklabels([f"{x:g}" for x, _ in lines[0][1]])
        axes.xaxis.set_minor_locator(NullLocator())
        log_y(axes)
        axes.set(xlabel="condition number of the covariance", ylabel=ylabel)
        figure.legend(loc="outside upper center", ncols=2, handlelength=2, columnspacing=1)
        return as_svg(figure, ylabel)


def plot_bands(lines: Sequence[Banded], ticks: Sequence[str], xlabel: str, ylabel: str) -> str:
    """Shares with bands over equally spaced places, a line each with its name, colour, marker and dash, at most 8.

    Args:
        lines: a name, and for each place a mean and half the height of the band, or None where nothing was measured.
            Bands end at 0.
        ticks: names of the places.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.0, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for (name, points), colour, marker, dash in zip(lines, PALETTE, "osD^vP*X", DASHES, strict=False):
            places = [place for place, point in enumerate(points) if point is not None]
            means, halves = np.array([point for point in points if point is not None]).T
            axes.fill_between(places, np.maximum(means - halves, 0.0), means + halves, color=colour, alpha=0.15, lw=0)
            axes.plot(places, means, label=name, color=colour, marker=marker, ls=dash, ms=4.5, lw=1.4)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        figure.legend(loc="outside upper center", ncols=2, handlelength=3, columnspacing=1)
        return as_svg(figure, f"{xlabel} {ylabel}")
