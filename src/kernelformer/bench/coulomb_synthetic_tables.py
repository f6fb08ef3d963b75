"""Tables, plots and verdicts of the synthetic study of the Coulomb paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelformer.bench.coulomb_synthetic import SPREAD_WEIGHTS, Cell, Study, slope
from kernelformer.bench.coulomb_synthetic_methods import PAPER_WEIGHTS
from kernelformer.bench.drawing import standalone
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.plots import Banded, plot_bands
from kernelformer.tasks.intervals import mean_interval

__all__ = [
    "budget_markdown",
    "claims_markdown",
    "noise_markdown",
    "synthetic_markdown",
    "synthetic_plots",
    "verdicts",
    "weights_markdown",
]

_PRINTED, _TUNED = "particles, printed settings", "particles, tuned"
_SHOWN = (
    _TUNED,
    "particles",
    _PRINTED,
    "importance sampled, tuned",
    "random features, tuned",
    "svm_rbf, tuned",
    "larger class",
)
"""Methods of the plots, which would be crowded with all."""


class Verdict(NamedTuple):
    """A claim of the paper, its figure, ours, and what follows."""

    claim: str
    paper: str
    here: str
    verdict: str


def noise_markdown(study: Study, metric: str) -> str:
    """A row a method, a column a noise level: mean ± standard deviation over seeds of ``metric``."""
    cells = _part(study, "noise")
    noises = _distinct(cells, lambda cell: cell["noise"])
    rows = []
    for method in _distinct(cells, lambda cell: cell["method"]):
        rows.append([method, *(_mean(_find(cells, method, noise), metric) for noise in noises)])
    return markdown_table(["σ", *(f"{noise:.2g}" for noise in noises)], rows)


def weights_markdown(study: Study) -> str:
    """A row a method and noise level, a column a λ: accuracy."""
    cells = _part(study, "weight")
    weights = sorted(_distinct(cells, lambda cell: cell["value"]))
    rows = []
    for method, noise in _distinct(cells, lambda cell: (cell["method"], cell["noise"])):
        found = {cell["value"]: _mean(cell, "accuracy") for cell in cells if _is(cell, method, noise)}
        rows.append([f"{method}; σ = {noise:.2g}", *(found.get(weight, "") for weight in weights)])
    return markdown_table(["λ", *(f"{weight:g}" for weight in weights)], rows)


def budget_markdown(study: Study) -> str:
    """A row a method and noise level, a column a number of features: accuracy; and what 64 keep of that of 256.

    The last column is what they keep of the accuracy above that of always saying the larger class.
    """
    cells = _part(study, "budget")
    budgets = sorted(_distinct(cells, lambda cell: cell["value"]))
    rows = []
    for method, noise in _distinct(cells, lambda cell: (cell["method"], cell["noise"])):
        found = {cell["value"]: cell for cell in cells if _is(cell, method, noise)}
        kept, above = _kept(study, method, noise)
        shares = [f"{kept.mean():.1%}", above]
        rows.append([f"{method}; σ = {noise:.2g}", *(_mean(found[b], "accuracy") for b in budgets), *shares])
    return markdown_table(
        ["features", *(f"{budget:g}" for budget in budgets), "64 / 256", "above the larger class"], rows
    )


def claims_markdown(study: Study) -> str:
    """A row a claim: the paper's figure, ours with 95 % intervals over seeds, a verdict."""
    return markdown_table(["claim", "the paper", "here", "verdict"], [list(verdict) for verdict in verdicts(study)])


def verdicts(study: Study) -> list[Verdict]:
    """Every claim, judged."""
    return [*_pair_verdicts(study), *_weight_verdicts(study), *_budget_verdicts(study), *_spread_verdicts(study)]


def synthetic_markdown(study: Study) -> str:
    """All tables, each under its name."""
    tables = {
        "Accuracy": noise_markdown(study, "accuracy"),
        "F1": noise_markdown(study, "f1"),
        "Accuracy by repulsion": weights_markdown(study),
        "Accuracy by number of features": budget_markdown(study),
        "Claims": claims_markdown(study),
    }
    return "\n\n".join(f"{name}\n\n{table}" for name, table in tables.items())


def synthetic_plots(study: Study) -> dict[str, str]:
    """SVG texts: accuracy and F1 against noise, accuracy against λ, accuracy against the number of features."""
    plots = {}
    cells = _part(study, "noise")
    noises = _distinct(cells, lambda cell: cell["noise"])
    for metric, label in (("accuracy", "accuracy"), ("f1", "F1")):
        lines: list[Banded] = [
            (method, [_point(_find(cells, method, noise), metric) for noise in noises]) for method in _SHOWN
        ]
        plots[metric] = plot_bands(lines, [f"{noise:.2g}" for noise in noises], "noise σ", label)
    moderate = _moderate(study)[0]
    for part, name, noise in (("weight", "λ", moderate), ("budget", "features", noises[0])):
        cells = [cell for cell in _part(study, part) if cell["noise"] == noise]
        values = sorted(_distinct(cells, lambda cell: cell["value"]))
        lines = []
        for method in _distinct(cells, lambda cell: cell["method"]):
            found = {cell["value"]: _point(cell, "accuracy") for cell in cells if cell["method"] == method}
            lines.append((method, [found.get(value) for value in values]))
        plots[part] = plot_bands(lines, [f"{value:g}" for value in values], name, f"accuracy at σ = {noise:.2g}")
    return {name: standalone(plot) for name, plot in plots.items()}


def _pair_verdicts(study: Study) -> list[Verdict]:
    """Accuracy, and F1, of one method less that of another at the lowest noise."""
    pairs = [
        (_PRINTED, "random features", "accuracy", ".657 − .56"),
        ("particles", "random features", "accuracy", ""),
        (_TUNED, "random features, tuned", "accuracy", ""),
        (_PRINTED, "svm_rbf", "accuracy", ".657 − .63"),
        ("particles", "svm_rbf", "accuracy", ""),
        (_TUNED, "svm_rbf, tuned", "accuracy", ""),
        (_PRINTED, "logistic", "accuracy", ".657 − .65"),
        ("particles", "logistic", "accuracy", ""),
        ("random features", "importance sampled", "accuracy", ".56 − .48"),
        (_TUNED, "importance sampled, tuned", "accuracy", ""),
        (_PRINTED, "random features", "f1", ".76 − .66"),
        ("particles", "random features", "f1", ""),
        ("particles", "larger class", "f1", ""),
    ]
    verdicts = []
    for one, other, metric, paper in pairs:
        name = "F1" if metric == "f1" else metric
        here, verdict = _judge(_values(study, one, metric) - _values(study, other, metric))
        verdicts.append(Verdict(f"{name}: {one} > {other}", paper, here, verdict))
    return verdicts


def _weight_verdicts(study: Study) -> list[Verdict]:
    """λ of 0.5 to 1 against none and against the best, over the moderate noise levels."""
    verdicts = []
    for method in ("printed settings, log", "defaults, log", "printed settings, Coulomb", "defaults, Coulomb"):
        found = {}
        for weight in _distinct([c for c in _part(study, "weight") if c["method"] == method], lambda c: c["value"]):
            chosen = [c for c in _part(study, "weight") if c["method"] == method and c["value"] == weight]
            found[weight] = np.mean([c["accuracy"] for c in chosen if c["noise"] in _moderate(study)], axis=0)
        best = max(found, key=lambda weight: found[weight].mean())
        strong = max((w for w in PAPER_WEIGHTS if 0.5 <= w <= 1.0), key=lambda weight: found[weight].mean())
        here, verdict = _judge(found[strong] - found[0.0])
        verdicts.append(
            Verdict(
                f"{method}: λ of 0.5 to 1 > λ = 0 at σ = {' and '.join(f'{n:.2g}' for n in _moderate(study))}",
                "best",
                f"{here}, at {strong:g}; the best is {best:g}",
                verdict,
            )
        )
    return verdicts


def _budget_verdicts(study: Study) -> list[Verdict]:
    verdicts = []
    lowest = _part(study, "budget")[0]["noise"]
    for method in ("particles", "fixed"):
        kept, above = _kept(study, method, lowest)
        low, high = mean_interval(list(kept))
        verdicts.append(
            Verdict(
                f"{method}: 64 features keep 90 % of the accuracy of 256",
                "90 %" if method == "particles" else "",
                f"{kept.mean():.1%} [{low:.1%}, {high:.1%}]; above the larger class {above}",
                "seen here" if low >= 0.9 else "less is kept" if high < 0.9 else "undecided",
            )
        )
    return verdicts


def _spread_verdicts(study: Study) -> list[Verdict]:
    verdicts = []
    for weight in SPREAD_WEIGHTS:
        rows = [row for row in study["spreads"] if row["weight"] == weight]
        counts = ", ".join(f"{row['spread']:.3f} ({row['num_particles']})" for row in rows)
        falls = all(more["spread"] < less["spread"] for less, more in itertools.pairwise(rows))
        claim = f"λ = {weight:g}: the spread of the kernel falls as N grows"
        here = f"slope {slope(rows):.2f} (independent: −0.50): {counts}"
        verdicts.append(Verdict(claim, "a limit, no rate", here, "seen here" if falls else "not seen"))
    return verdicts


def _judge(differences: NDArray[np.float64]) -> tuple[str, str]:
    """Mean difference in points with its interval, and what it says."""
    low, high = mean_interval(list(differences))
    here = f"{100 * differences.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] points"
    verdict = "seen here" if low > 0 else "the reverse is seen" if high < 0 else "undecided"
    return here, verdict


def _kept(study: Study, method: str, noise: float) -> tuple[NDArray[np.float64], str]:
    """Of the accuracy of 256 features what 64 keep, a share a seed; and of that above the larger class, in the mean."""
    found = {cell["value"]: np.array(cell["accuracy"]) for cell in _part(study, "budget") if _is(cell, method, noise)}
    base = _values(study, "larger class", "accuracy", noise).mean()
    most = found[256].mean() - base
    above = f"{(found[64].mean() - base) / most:.0%}" if most > 0.0 else "256 are not above"
    return found[64] / found[256], above


def _moderate(study: Study) -> list[float]:
    """Noise levels of the ablation but the lowest, where labels are all but certain."""
    return _distinct(_part(study, "weight"), lambda cell: cell["noise"])[1:]


def _part(study: Study, part: str) -> list[Cell]:
    return [cell for cell in study["cells"] if cell["part"] == part]


def _is(cell: Cell, method: str, noise: float) -> bool:
    return cell["method"] == method and cell["noise"] == noise


def _find(cells: Sequence[Cell], method: str, noise: float) -> Cell:
    return next(cell for cell in cells if _is(cell, method, noise))


def _values(study: Study, method: str, metric: str, noise: float | None = None) -> NDArray[np.float64]:
    """One a seed, at the lowest noise unless told another."""
    cells = _part(study, "noise")
    cell = _find(cells, method, cells[0]["noise"] if noise is None else noise)
    return np.array(_scores(cell, metric))


def _scores(cell: Cell, metric: str) -> list[float]:
    return {"accuracy": cell["accuracy"], "f1": cell["f1"], "macro_f1": cell["macro_f1"]}[metric]


def _point(cell: Cell, metric: str) -> tuple[float, float]:
    found = _scores(cell, metric)
    return float(np.mean(found)), float(np.std(found, ddof=1))


def _mean(cell: Cell, metric: str) -> str:
    mean, spread = _point(cell, metric)
    return f"{mean:.3f} ± {spread:.3f}"


def _distinct(cells: Sequence[Cell], key: Callable[[Cell], Any]) -> list[Any]:
    return list(dict.fromkeys(key(cell) for cell in cells))
