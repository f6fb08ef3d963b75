"""Pictures of kernels and attention, as SVG to stand inside a page: weights, shapes, projections before and after."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from kernelformer.bench.drawing import INK, KERNEL, SIZE, SOFTMAX, STYLE, THIRD, as_svg, legend_above, new_axes
from kernelformer.bench.look import Cloud, Shape

__all__ = ["plot_cloud", "plot_lengths", "plot_shape", "plot_weights"]


def plot_weights(tokens: Sequence[str], weights: Sequence[Sequence[float]], most: float, name: str) -> str:
    """Who looks at whom: a row a query, a column a key; ``most`` is the darkest weight of the scale."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], 3.5), layout="constrained")
        axes = figure.add_subplot()
        # The root brings out small weights; cividis is read alike with any colour vision.
        drawn = axes.pcolormesh(np.asarray(weights), cmap="cividis", norm=PowerNorm(0.5, 0.0, most), linewidth=0)
        bar = figure.colorbar(drawn, ax=axes, shrink=0.6, format=PercentFormatter(1.0, decimals=0))
        bar.outline.set_visible(False)
        places = np.arange(len(tokens)) + 0.5
        size = 8 if len(tokens) <= 18 else 6
        axes.set_xticks(places, tokens, rotation=90, fontsize=size)
        axes.set_yticks(places, tokens, fontsize=size)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_aspect("equal")
        axes.set(xlabel="is looked at", ylabel="looks")
        return as_svg(figure, name)


def plot_shape(shape: Shape, name: str) -> str:
    """A kernel against the distance of query and key, beside softmax."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        axes.plot(shape.distance, shape.softmax, color=SOFTMAX, ls="--", lw=1.4, label="softmax")
        axes.plot(shape.distance, shape.kernel, color=KERNEL, lw=1.6, label="kernel")
        axes.axvline(shape.between, color=INK, lw=1, ls=":", label="of the text")
        axes.set_ylim(min(-0.05, max(-0.5, min(shape.kernel) - 0.05)), 1.15)
        axes.set(xlabel="distance of query and key ‖q - k‖", ylabel="kernel, 1 at no distance")
        legend_above(figure, axes)
        return as_svg(figure, name)


def plot_lengths(cloud: Cloud, name: str) -> str:
    """How long the projections of a layer are, before and after; for frequencies, their spectral density."""
    before, after = cloud["lengths_before"], cloud["lengths_after"]
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        edges = np.linspace(0.0, max(*before, *after), 31).tolist()
        for lengths, label, colour, dash in ((before, "before", THIRD, "--"), (after, "after", KERNEL, "-")):
            shares = np.full(len(lengths), 1 / len(lengths))
            axes.hist(lengths, edges, weights=shares, histtype="step", color=colour, ls=dash, lw=1.5, label=label)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set(xlabel="length ‖ω‖", ylabel="share")
        legend_above(figure, axes)
        return as_svg(figure, name)


def plot_cloud(cloud: Cloud, name: str) -> str:
    """Where the projections of one head are, before and after learning, on the plane in which they vary most."""
    before, after = np.asarray(cloud["before"]), np.asarray(cloud["after"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], 3.6), layout="constrained")
        axes = figure.add_subplot()
        if len(before) == len(after):
            axes.plot(*np.stack([before, after], axis=1).T, color=INK, lw=0.4, alpha=0.35)
        axes.plot(*before.T, "o", ms=4.5, mfc="none", mec=THIRD, label="before")
        axes.plot(*after.T, "D", ms=3.5, color=KERNEL, mec=KERNEL, label="after")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xlabel="first direction", ylabel="second direction")
        legend_above(figure, axes)
        return as_svg(figure, name)
