"""How every plot of a page is drawn: size, style, colours, and the SVG that stands inside a page.

Colours are the page's, by CSS variables (--ink, --faint, --softmax, --kernel, --third), so that one plot suits light
and dark. The page takes them from Okabe and Ito's palette, told apart with any colour vision; lines differ by
marker and dash and bars by hatching, too.
"""

from __future__ import annotations

import io
import re
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

__all__ = [
    "DASHES",
    "FAINT",
    "INK",
    "KERNEL",
    "PALETTE",
    "SIZE",
    "SOFTMAX",
    "STYLE",
    "THIRD",
    "as_svg",
    "legend_above",
    "log_y",
    "new_axes",
    "short_length",
    "standalone",
]

# Stand-ins that matplotlib writes into the SVG, and what they become.
INK, FAINT, SOFTMAX, KERNEL, THIRD = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
VARIABLES: Final = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    SOFTMAX: "var(--softmax)",
    KERNEL: "var(--kernel)",
    THIRD: "var(--third)",
}
STYLE: Final[Any] = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "hatch.color": INK,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
# Narrow, because a telephone shows it some 350 pixels wide and the letters must stay readable.
SIZE: Final = (4.1, 2.8)

PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
DASHES: Final = ("-", "--", "-.", ":", "-", "--", "-.", ":")


def standalone(svg: str) -> str:
    """A plot as a file of its own: the page's colours and a white ground put in."""
    colours = "--ink:#1d2328;--faint:#d8dde2;--softmax:#0072b2;--kernel:#d55e00;--third:#009e73"
    opened = svg.index(">") + 1
    return f"{svg[:opened]}<style>svg{{{colours};background:#fff}}</style>{svg[opened:]}"


def new_axes() -> tuple[Figure, Axes]:
    # No pyplot: it would keep the figure and choose a window system.
    figure = Figure(figsize=SIZE, layout="constrained")
    return figure, figure.add_subplot()


def log_y(axes: Axes) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    # Within a decade or two, powers of ten alone would leave an axis with one number or none.
    steps = (1, 2, 5) if high < 200 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_above(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), handlelength=2, columnspacing=1)


def short_length(length: float) -> str:
    return f"{length / 1024:g}k" if length >= 1024 else f"{length:g}"


def as_svg(figure: Figure, name: str) -> str:
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
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text
