"""What a study of ``transfer`` says: means over tasks, the share of the teacher kept, the drop out of domain."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from kernelformer.bench.markdown import markdown_table
from kernelformer.tasks.intervals import mean_interval

__all__ = ["claims_markdown", "scores_markdown", "transfer_claims"]

_TEACHER: Final = "softmax"


def scores_markdown(study: dict[str, Any]) -> str:
    """Accuracy a task, in and out of domain; means over tasks, ± standard deviation over seeds."""
    tasks = study["settings"]["tasks"]
    header = ["kernel", "distilled on", *tasks, "mean", "of the teacher's"]
    lines = []
    teacher = _means(study, _TEACHER, out=False)
    for kernel in _kernels(study):
        for out in (False, True):
            means = _means(study, kernel, out)
            if not means:
                continue
            scores = _by_task(study, kernel, out)
            where = "" if kernel == _TEACHER else "another task" if out else "the task"
            cells = [f"{statistics.fmean(chain(*scores[task].values())):.3f}" for task in tasks]
            shares = [100 * mean / reference for mean, reference in zip(means, teacher, strict=True)]
            share = "" if kernel == _TEACHER else f"{_spread(shares, 1)} %"
            lines.append([kernel, where, *cells, _spread(means, 4), share])
    return markdown_table(header, lines, left=(0, 1))


def claims_markdown(study: dict[str, Any]) -> str:
    """What :func:`transfer_claims` says, as a table."""
    return markdown_table(["claim", "the paper", "here", "verdict"], transfer_claims(study), left=(0, 3))


def transfer_claims(study: dict[str, Any]) -> list[list[str]]:
    """[claim, the paper's figure, ours, verdict] of the share of the teacher that Flexformer_n keeps, and of its drop
    out of domain beside Hedgehog's.
    """
    kept = [
        100 * mean / reference
        for mean, reference in zip(_means(study, "flexformer_n", False), _means(study, _TEACHER, False), strict=True)
    ]
    drops = {kernel: _drops(study, kernel) for kernel in ("flexformer_n", "hedgehog")}
    ahead = [100 * (first - second) for first, second in zip(drops["hedgehog"], drops["flexformer_n"], strict=True)]
    words = ", ".join(f"{kernel} {100 * statistics.fmean(found):+.1f}" for kernel, found in drops.items())
    return [
        [
            "flexformer_n keeps 98 % of the teacher's mean score",
            "97.9 %",
            f"{statistics.fmean(kept):.1f} {_interval(kept)} %",
            _verdict(kept, 98.0),
        ],
        [
            "flexformer_n drops less out of domain than hedgehog",
            "1.8 points less",
            f"{statistics.fmean(ahead):+.1f} {_interval(ahead)} points ({words})",
            _verdict(ahead, 0.0),
        ],
    ]


def _kernels(study: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(run["kernel"] for run in study["runs"]))


def _by_task(study: dict[str, Any], kernel: str, out: bool) -> dict[str, dict[int, list[float]]]:
    """Task -> seed -> accuracies: of the kernels distilled there, or of those from elsewhere."""
    found: dict[str, dict[int, list[float]]] = {task: {} for task in study["settings"]["tasks"]}
    for run in study["runs"]:
        for task, accuracy in run["accuracy"].items():
            if run["kernel"] == kernel and (task != run["source"]) == out:
                found[task].setdefault(run["seed"], []).append(accuracy)
    return found


def _means(study: dict[str, Any], kernel: str, out: bool) -> list[float]:
    """The mean over tasks, one a seed; none for a kernel that was never carried to another task."""
    scores = _by_task(study, kernel, out)
    if not all(scores.values()):
        return []
    return [statistics.fmean(statistics.fmean(scores[task][seed]) for task in scores) for seed in range(study["seeds"])]


def _drops(study: dict[str, Any], kernel: str) -> list[float]:
    """In domain minus out of domain, mean over tasks, one a seed."""
    return [a - b for a, b in zip(_means(study, kernel, False), _means(study, kernel, True), strict=True)]


def _interval(values: Sequence[float]) -> str:
    low, high = mean_interval(values)
    return f"[{low:.1f}, {high:.1f}]"


def _verdict(values: Sequence[float], target: float) -> str:
    low, high = mean_interval(values)
    return "seen here" if low > target else "the reverse is seen" if high < target else "undecided"


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"
