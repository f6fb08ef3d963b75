"""``report.json``, ``report.html`` and the table on the terminal, all from one record.

The page is one file that asks nothing of any network: a content security policy in it forbids it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.table import Table

from kernelformer.bench.attention import Timing
from kernelformer.bench.look import Cloud
from kernelformer.bench.memory import Memory
from kernelformer.bench.pictures import plot_cloud, plot_lengths
from kernelformer.bench.plots import Line, plot_cosines, plot_errors, plot_losses, plot_scaling
from kernelformer.bench.record import SCHEMA, LanguageEvaluation, Record
from kernelformer.bench.summary import format_count, summary_rows
from kernelformer.tasks.files import plain, write_text

__all__ = ["conversion_plots", "projection_plots", "render_html", "summary_table", "templates", "write_report"]


def write_report(folder: str | Path, record: Record) -> tuple[Path, Path]:
    """Write ``report.json`` (the record and its "schema") and ``report.html`` into ``folder``.

    Each file is there whole or not at all.

    Numbers that are not finite become null in the JSON, which knows none.

    Returns:
        Paths of both files.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, **plain(record)}, indent=1, ensure_ascii=False, allow_nan=False)
    paths = target / "report.json", target / "report.html"
    write_text(paths[0], text + "\n")
    write_text(paths[1], render_html(record))
    return paths


def summary_table(record: Record) -> Table:
    """The summary, to print."""
    table = Table(title=f"{record['teacher']} with {record['kernel']} attention, {record['num_features']} features")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("remark")
    for row in summary_rows(record):
        table.add_row(*row)
    return table


def render_html(record: Record) -> str:
    """The page as text."""
    return (
        templates()
        .get_template("report.html.jinja")
        .render(record=record, summary=summary_rows(record), plots=conversion_plots(record))
    )


def templates() -> Environment:
    """The templates beside this file."""
    environment = Environment(
        loader=PackageLoader("kernelformer.bench", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = format_count
    return environment


def conversion_plots(record: Record) -> dict[str, Any]:
    """The SVG of every plot for which there are data, marked as safe to stand in the page."""
    evaluation, language = record["evaluation"], record["language"]
    plots: dict[str, Any] = {
        "cosines": None if evaluation is None else Markup(plot_cosines(evaluation["agreement"]["cosines"])),
        "perplexities": None if language is None else _perplexity_plot(language),
        "recall": None if language is None else _recall_plot(language),
        "errors": Markup(plot_errors(record["per_layer"])) if record["per_layer"] else None,
        "losses": {stage: Markup(plot_losses(stage, curve)) for stage, curve in record["losses"].items() if curve},
    }
    plots["projections"] = projection_plots(record["projections"])
    cost = record["cost"]
    if cost is not None:
        plots["attention_time"] = _time_plot(cost["attention"], cost["attention_crossover"], "attention, ms")
        plots["models_time"] = _time_plot(cost["models"], cost["models_crossover"], "model, ms")
        plots["attention_memory"] = _memory_plot(
            cost["attention"], cost["softmax_memory"], cost["kernel_memory"], "attention, peak MiB"
        )
        plots["models_memory"] = _memory_plot(
            cost["models"], cost["teacher_memory"], cost["student_memory"], "model, peak MiB"
        )
    return plots


def projection_plots(clouds: Sequence[Cloud]) -> list[tuple[int, Markup, Markup]]:
    """(layer, plot of lengths, plot of places) of each."""
    return [
        (
            cloud["layer"],
            Markup(plot_lengths(cloud, f"lengths {cloud['layer']}")),
            Markup(plot_cloud(cloud, f"cloud {cloud['layer']}")),
        )
        for cloud in clouds
    ]


def _time_plot(timings: list[Timing], crossover: float | None, unit: str) -> Markup:
    softmax = [(row["length"], row["softmax_ms"]) for row in timings]
    kernel = [(row["length"], row["kernel_ms"]) for row in timings]
    return Markup(plot_scaling(softmax, kernel, unit, crossover))


def _perplexity_plot(language: LanguageEvaluation) -> Markup:
    lines = [[(first, value) for first, _, value in language[who]["buckets"]] for who in ("teacher", "student")]
    return Markup(plot_scaling(lines[0], lines[1], "perplexity"))


def _recall_plot(language: LanguageEvaluation) -> Markup | None:
    sides = (language["teacher_recall"], language["student_recall"])
    lines = [list(zip(side["distances"], (100 * x for x in side["accuracy"]), strict=True)) for side in sides]
    if not all(lines) or min(value for line in lines for _, value in line) <= 0:
        return None
    return Markup(plot_scaling(lines[0], lines[1], "recalled, %"))


def _memory_plot(timings: list[Timing], softmax: Memory, kernel: Memory, unit: str) -> Markup | None:
    lines: list[Line | None] = [
        None if side["mib"] is None else [(row["length"], mib) for row, mib in zip(timings, side["mib"], strict=True)]
        for side in (softmax, kernel)
    ]
    known = any(mib > 0 for line in lines for _, mib in line or ())
    return Markup(plot_scaling(lines[0], lines[1], unit)) if known else None
