"""What a study of ``coulomb_text`` says: means over seeds, paired differences, and tables of both."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from kernelformer.bench.coulomb_text import PAPER, ROWS, Row
from kernelformer.bench.markdown import markdown_table
from kernelformer.tasks.metrics import Difference, compare_classifiers

__all__ = ["StudyPair", "StudyRow", "StudySummary", "metrics_markdown", "pairs_markdown", "summarise"]

_METRICS: Final = (
    "accuracy",
    "f1_macro",
    "f1_weighted",
    "mcc",
    "balanced_accuracy",
    "roc_auc",
    "pr_auc",
    "log_loss",
    "brier",
    "ece",
    "ece_mixed",
)


class StudyRow(TypedDict):
    """One classifier: metric -> [mean, standard deviation] over seeds, and the paper's accuracy.

    validation: mean over seeds of the accuracy that selected the weights. seconds: of the CPU, align and train.
    """

    row: str
    metrics: dict[str, tuple[float, float]]
    validation: float
    seconds: float
    paper: float | None


class StudyPair(TypedDict):
    """Learned minus vanilla, and learned minus softmax, in accuracy on the same texts. paper: its learned - vanilla."""

    kernel: str
    vanilla: Difference
    softmax: Difference
    paper: float | None


class StudySummary(TypedDict):
    """A study without its predictions. best: the learned row of the highest validation accuracy."""

    settings: dict[str, Any]
    seeds: int
    texts: dict[str, int]
    machine: str
    versions: dict[str, str]
    rows: list[StudyRow]
    pairs: list[StudyPair]
    best: str


def summarise(study: dict[str, Any], rows: Sequence[Row] = ROWS) -> StudySummary:
    """Means, spreads and paired differences of what ``run_study`` returned."""
    paper = PAPER[study["settings"]["texts"]]
    runs = {row.name: [run for run in study["runs"] if run["row"] == row.name] for row in rows}
    labels = np.asarray(study["labels"])
    correct = {name: [_correct(run, labels) for run in found] for name, found in runs.items()}
    pairs = [row.name.removeprefix("kernel ") for row in rows if row.aligned]
    summary: StudySummary = {
        "settings": study["settings"],
        "seeds": study["seeds"],
        "texts": study["texts"],
        "machine": study["machine"],
        "versions": study["versions"],
        "rows": [_row(row.name, runs[row.name], paper[row.name]) for row in rows],
        "pairs": [
            {
                "kernel": kernel,
                "vanilla": compare_classifiers(correct[f"vanilla {kernel}"], correct[f"kernel {kernel}"]),
                "softmax": compare_classifiers(correct["softmax"], correct[f"kernel {kernel}"]),
                "paper": _paper_gain(kernel, paper),
            }
            for kernel in pairs
        ],
        "best": "",
    }
    learned = [row for row in summary["rows"] if row["row"].startswith("kernel ")]
    summary["best"] = max(learned, key=lambda row: row["validation"])["row"]
    return summary


def metrics_markdown(summary: StudySummary) -> str:
    """All metrics of all rows, means over seeds; accuracy with its standard deviation over seeds."""
    header = ["row", "accuracy", "paper's", *(name.replace("_", " ") for name in _METRICS[1:]), "CPU s"]
    lines = []
    for row in summary["rows"]:
        mean, spread = row["metrics"]["accuracy"]
        name = f"**{row['row']}**" if row["row"] == summary["best"] else row["row"]
        values = [f"{row['metrics'][metric][0]:.3f}" for metric in _METRICS[1:]]
        paper = "" if row["paper"] is None else f"{row['paper']:.3f}"
        lines.append([name, f"{mean:.4f} ± {spread:.4f}", paper, *values, f"{row['seconds']:.0f}"])
    return markdown_table(header, lines)


def pairs_markdown(summary: StudySummary) -> str:
    """Differences in points of accuracy with their 95 % intervals, and what they say."""
    header = ["kernel", "learned − vanilla", "p a seed", "verdict", "paper's", "learned − softmax"]
    lines = []
    for pair in summary["pairs"]:
        chances = ", ".join(f"{p:.2f}" for p in pair["vanilla"]["p"])
        paper = "" if pair["paper"] is None else f"{100 * pair['paper']:+.1f}"
        found = pair["vanilla"]
        lines.append([pair["kernel"], _points(found), chances, _verdict(found), paper, _points(pair["softmax"])])
    return markdown_table(header, lines, left=(0, 3))


def _correct(run: dict[str, Any], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (np.asarray(run["positive"]) > 0.5) == (labels == 1)
    return found


def _row(name: str, runs: Sequence[dict[str, Any]], paper: float | None) -> StudyRow:
    metrics = {}
    for metric in _METRICS:
        values = [run["metrics"][metric] for run in runs]
        metrics[metric] = (statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
    return {
        "row": name,
        "metrics": metrics,
        "validation": statistics.fmean(max(run["validation"]) for run in runs),
        "seconds": statistics.fmean(sum(run["seconds"].values()) for run in runs),
        "paper": paper,
    }


def _paper_gain(kernel: str, paper: Mapping[str, float | None]) -> float | None:
    vanilla, learned = paper[f"vanilla {kernel}"], paper[f"kernel {kernel}"]
    return None if vanilla is None or learned is None else learned - vanilla


def _verdict(difference: Difference) -> str:
    low, high = difference["interval"]
    return "better" if low > 0 else "worse" if high < 0 else "level"


def _points(difference: Difference) -> str:
    low, high = difference["interval"]
    return f"{100 * difference['accuracy']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
