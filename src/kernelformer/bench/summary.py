"""The few figures that say how a conversion went, as rows for every kind of table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernelformer.bench.record import Record
from kernelformer.tasks.probing import ProbeDifference

__all__ = ["SummaryRow", "format_count", "summary_rows"]


class SummaryRow(NamedTuple):
    """A figure: its name, its value and, where there is one, its interval or a remark."""

    name: str
    value: str
    remark: str = ""


def summary_rows(record: Record) -> list[SummaryRow]:
    """The rows, most telling first."""
    return [*_embedding_rows(record), *_language_rows(record), *_layer_rows(record), *_cost_rows(record)]


def format_count(number: float) -> str:
    """1234567.8 -> "1,234,568"."""
    return f"{number:,.0f}"


def _embedding_rows(record: Record) -> list[SummaryRow]:
    evaluation = record["evaluation"]
    if evaluation is None:
        return []
    agreement = evaluation["agreement"]
    texts = format_count(agreement["texts"])
    return [
        SummaryRow(
            "Embedding cosine with the teacher",
            f"{agreement['cosine']:.4f}",
            f"95 % {_interval(agreement['cosine_ci'], 4)}; {texts} held-out texts",
        ),
        SummaryRow("… of the lowest 5 % of texts, at most", f"{agreement['cosine_p05']:.4f}"),
        SummaryRow(
            f"Common among {agreement['neighbour_count']} nearest neighbours",
            f"{agreement['neighbours']:.1%}",
            f"95 % {_interval(agreement['neighbours_ci'], 1, percent=True)}",
        ),
        *_probe_rows(evaluation["probe"]),
    ]


def _language_rows(record: Record) -> list[SummaryRow]:
    language = record["language"]
    if language is None:
        return []
    teacher, student = language["teacher"], language["student"]
    ratio = student["perplexity"] / teacher["perplexity"]
    rows = [
        SummaryRow(
            f"Perplexity, {who}",
            f"{found['perplexity']:.2f}",
            f"95 % {_interval(found['perplexity_ci'], 2)}; {format_count(found['tokens'])} held-out tokens",
        )
        for who, found in (("teacher", teacher), ("student", student))
    ]
    rows.append(SummaryRow("… student over teacher", f"{ratio:.3f}"))
    rows.append(
        SummaryRow("Next token right, student", f"{student['accuracy']:.1%}", f"teacher {teacher['accuracy']:.1%}")
    )
    recalled = language["student_recall"]
    for index, distance in enumerate(recalled["distances"]):
        rows.append(
            SummaryRow(
                f"Recall after {format_count(distance)} tokens, student",
                f"{recalled['accuracy'][index]:.1%}",
                f"teacher {language['teacher_recall']['accuracy'][index]:.1%}",
            )
        )
    return rows


def _probe_rows(probe: ProbeDifference | None) -> list[SummaryRow]:
    if probe is None:
        return []
    return [
        SummaryRow(
            "Probe accuracy, teacher",
            f"{probe['teacher']:.1%}",
            f"95 % {_interval(probe['teacher_ci'], 1, percent=True)}; commonest label {probe['majority']:.1%}",
        ),
        SummaryRow(
            "Probe accuracy, student",
            f"{probe['student']:.1%}",
            f"95 % {_interval(probe['student_ci'], 1, percent=True)}",
        ),
        SummaryRow(
            "… student minus teacher, in points",
            f"{100 * probe['difference']:+.1f}",
            f"95 % {_interval([100 * end for end in probe['difference_ci']], 1)}, paired; p = {probe['p']:.2g}",
        ),
    ]


def _layer_rows(record: Record) -> list[SummaryRow]:
    layers = record["per_layer"]
    if not layers:
        return []
    last = [_last_error(layer["error_start"], layer["error_distilled"], layer["error_finetuned"]) for layer in layers]
    start = sum(layer["error_start"] for layer in layers) / len(layers)
    floored = max(layer["floored_share"] for layer in layers)
    return [
        SummaryRow(
            "Attention-output error, mean of layers",
            f"{sum(last) / len(last):.3f}",
            f"{start:.3f} before fitting; worst layer {max(last):.3f}",
        ),
        SummaryRow("Rows at the floor, worst layer", f"{floored:.2%}"),
    ]


def _cost_rows(record: Record) -> list[SummaryRow]:
    cost = record["cost"]
    if cost is None:
        return []
    rows = []
    for title, timings, found in (
        ("Attention layer", cost["attention"], cost["attention_crossover"]),
        ("Whole model", cost["models"], cost["models_crossover"]),
    ):
        longest = max(timings, key=lambda row: row["length"])
        value = (
            f"no length up to {format_count(longest['length'])}" if found is None else f"{format_count(found)} tokens"
        )
        ratio = longest["softmax_ms"] / longest["kernel_ms"]
        remark = f"{ratio:.2f} × as fast at {format_count(longest['length'])}"
        rows.append(SummaryRow(f"{title}: faster than softmax from", value, remark))
    return rows


def _last_error(*stages: float | None) -> float:
    return [error for error in stages if error is not None][-1]


def _interval(ends: Sequence[float], digits: int, *, percent: bool = False) -> str:
    kind = "%" if percent else "f"
    return f"{ends[0]:.{digits}{kind}} … {ends[1]:.{digits}{kind}}"
