"""Many conversions of one model, that differ in the kernel and the seed, and their ranking."""

from __future__ import annotations

import dataclasses
import inspect
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from rich.table import Table

from kernelformer.bench.clock import TimeLeft
from kernelformer.bench.drawing import standalone
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.plots import plot_ranking
from kernelformer.cli.converting import Source, describe, prepare, read, run
from kernelformer.cli.options import ConvertSettings, events
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import find_feature_map, width_for
from kernelformer.learn import tensorboard
from kernelformer.tasks.files import write_json

__all__ = ["Plan", "Ranked", "compare", "describe_plan", "plan", "ranking_markdown", "ranking_table"]

_LONGEST = 8192


class Ranked(TypedDict):
    """One kernel's figures: means over seeds, and their standard deviation over seeds (0 for a single one).

    error: relative error of attention outputs after distillation, mean over layers. floored: the largest share of
    floored rows of a layer. seconds: of fitting and training. Of an encoder's final student: cosine, neighbours with
    the teacher; probe_difference, student minus teacher, with labels. Of a decoder's: perplexity, and that over the
    teacher's. None is what was not measured.
    """

    kernel: str
    num_features: int
    seeds: int
    error: float
    error_spread: float
    floored: float
    seconds: float
    cosine: float | None
    cosine_spread: float | None
    neighbours: float | None
    probe_teacher: float | None
    probe_student: float | None
    probe_difference: float | None
    perplexity: float | None
    perplexity_spread: float | None
    perplexity_ratio: float | None


class Plan(NamedTuple):
    """One conversion a kernel and seed, in OUT/NAME-SEED.

    Where work is left: ``sources``, teacher and texts by seed, and ``words``, what each output folder gets.
    """

    runs: list[ConvertSettings]
    sources: dict[int, Source]
    words: dict[str, str]

    def left(self) -> list[ConvertSettings]:
        """What is not finished."""
        return [one for one in self.runs if not _finished(one)]


def plan(settings: ConvertSettings, names: Sequence[str], seeds: Sequence[int]) -> Plan:
    """Check all conversions; ``settings.num_features`` is the width where it is free.

    Raises:
        KernelformerError: whatever one of those that are not finished cannot meet.
    """
    output = Path(settings.output)
    if output.exists() and not output.is_dir():
        raise KernelformerError(f"the output folder {output} is a file: choose another")
    found = Plan([_one(settings, output, name, seed) for name in names for seed in seeds], {}, {})
    for one in found.left():
        if one.seed not in found.sources:
            found.sources[one.seed] = read(one)
        found.words[one.output] = describe(prepare(one, found.sources[one.seed]))["convert"]
    return found


def describe_plan(plan: Plan) -> dict[str, str]:
    """What :func:`compare` would do, in words."""
    finished = {"finished": f"{len(plan.runs) - len(plan.left())} of {len(plan.runs)} conversions"}
    return finished | plan.words


def compare(plan: Plan, output: Path, say: Callable[[str], None]) -> list[Ranked]:
    """Convert what is planned but for what is finished, and rank it in OUT/compare.json.

    Returns:
        The best first: a decoder by perplexity, an encoder by cosine where students were trained, else by distilled
        error.
    """
    records: dict[str, list[dict[str, Any]]] = {}
    left = TimeLeft(len(plan.left()))
    for index, one in enumerate(plan.runs, 1):
        if not _finished(one):
            say(f"[{index}/{len(plan.runs)}] {one.kernel}, seed {one.seed}{left}")
            with tensorboard(events(one)):
                run(prepare(one, plan.sources[one.seed]), say)
            left.done()
        record = json.loads((Path(one.output) / "report.json").read_text(encoding="utf-8"))
        records.setdefault(one.kernel, []).append(record)
    trained = plan.runs[0].finetune
    rows = [_rank(name, found) for name, found in records.items()]
    rows.sort(key=lambda row: _badness(row, trained=trained != "none"))
    write_json(output / "compare.json", {"finetune": trained, "kernels": rows})
    plot = plot_ranking([(row["kernel"], row["error"], row["error_spread"]) for row in rows])
    (output / "compare.svg").write_text(standalone(plot), encoding="utf-8")
    return rows


def ranking_table(rows: Sequence[Ranked]) -> Table:
    """The ranking for a terminal."""
    table = Table(box=None, header_style="bold")
    columns = _columns(rows)
    for name in columns:
        table.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=name == "kernel")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def ranking_markdown(rows: Sequence[Ranked]) -> str:
    """The ranking as a Markdown table."""
    columns = _columns(rows)
    return markdown_table(list(columns), zip(*columns.values(), strict=True))


def _columns(rows: Sequence[Ranked]) -> dict[str, list[str]]:
    many = any(row["seeds"] > 1 for row in rows)

    def with_spread(value: float, spread: float, places: int = 4) -> str:
        return f"{value:.{places}f} ± {spread:.{places}f}" if many else f"{value:.{places}f}"

    columns = {
        "kernel": [row["kernel"] for row in rows],
        "features": [str(row["num_features"]) for row in rows],
        "distilled error": [with_spread(row["error"], row["error_spread"]) for row in rows],
    }
    if all(row["perplexity"] is not None for row in rows):
        columns |= {
            "perplexity": [with_spread(row["perplexity"] or 0.0, row["perplexity_spread"] or 0.0, 2) for row in rows],
            "over the teacher's": [f"{row['perplexity_ratio']:.3f}" for row in rows],
        }
    if all(row["cosine"] is not None for row in rows):
        columns |= {
            "cosine": [with_spread(row["cosine"] or 0.0, row["cosine_spread"] or 0.0) for row in rows],
            "neighbours": [f"{row['neighbours']:.1%}" for row in rows],
        }
    columns |= {
        "floored": [f"{row['floored']:.2%}" for row in rows],
        "seconds": [f"{row['seconds']:.0f}" for row in rows],
    }
    if all(row["probe_difference"] is not None for row in rows):
        columns["probe"] = [
            f"{row['probe_student']:.1%} ({100 * (row['probe_difference'] or 0.0):+.1f})" for row in rows
        ]
    return columns


def _one(settings: ConvertSettings, output: Path, name: str, seed: int) -> ConvertSettings:
    folder = output / f"{name.replace(':', '.')}-{seed}"
    width = width_for(name, settings.num_features)
    # A map that depends on positions must know the longest sequence; measuring goes to this length.
    options = [f"max_length={_LONGEST}"] if "max_length" in inspect.signature(find_feature_map(name)).parameters else []
    return dataclasses.replace(settings, kernel=name, num_features=width, option=options, seed=seed, output=str(folder))


def _finished(settings: ConvertSettings) -> bool:
    folder = Path(settings.output)
    return (folder / "report.json").is_file() and not (folder / ".work").exists()


def _badness(row: Ranked, *, trained: bool) -> float:
    """What the ranking goes by, the smallest first."""
    if row["perplexity"] is not None:
        return row["perplexity"]
    return -row["cosine"] if trained and row["cosine"] is not None else row["error"]


def _rank(name: str, records: Sequence[dict[str, Any]]) -> Ranked:
    errors = [statistics.fmean([layer["error_distilled"] for layer in record["per_layer"]]) for record in records]
    agreements = [record["evaluation"]["agreement"] for record in records if record["evaluation"]]
    cosines = [agreement["cosine"] for agreement in agreements]
    probes = [record["evaluation"]["probe"] for record in records if record["evaluation"]]
    probes = probes if all(probe is not None for probe in probes) else []
    language = [record["language"] for record in records if record["language"]]
    perplexities = [found["student"]["perplexity"] for found in language]
    ratios = [found["student"]["perplexity"] / found["teacher"]["perplexity"] for found in language]
    fitting = ("start", "distilled", "finetuned")
    return {
        "kernel": name,
        "num_features": records[0]["num_features"],
        "seeds": len(records),
        "error": statistics.fmean(errors),
        "error_spread": _spread(errors) or 0.0,
        "floored": statistics.fmean(max(layer["floored_share"] for layer in record["per_layer"]) for record in records),
        "seconds": statistics.fmean(sum(record["seconds"].get(step, 0.0) for step in fitting) for record in records),
        "cosine": _mean(cosines),
        "cosine_spread": _spread(cosines),
        "neighbours": _mean([agreement["neighbours"] for agreement in agreements]),
        "probe_teacher": _mean([probe["teacher"] for probe in probes]),
        "probe_student": _mean([probe["student"] for probe in probes]),
        "probe_difference": _mean([probe["difference"] for probe in probes]),
        "perplexity": _mean(perplexities),
        "perplexity_spread": _spread(perplexities),
        "perplexity_ratio": _mean(ratios),
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _spread(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return statistics.stdev(values) if len(values) > 1 else 0.0
