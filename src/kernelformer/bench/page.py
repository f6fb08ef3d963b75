"""One page over several runs, for readers who know none of the papers: a section a run, from the same records."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from kernelformer.bench.look import Shape, first_middle_last
from kernelformer.bench.pictures import plot_shape, plot_weights
from kernelformer.bench.plots import plot_losses, plot_ranking
from kernelformer.bench.record import Record
from kernelformer.bench.report import conversion_plots, projection_plots, templates
from kernelformer.bench.summary import summary_rows

__all__ = ["Look", "Section", "classifier_section", "conversion_section", "render_page", "study_section"]


@dataclass(frozen=True)
class Look:
    """What a model makes of one text.

    Attributes:
        text, tokens: the text.
        reference: what ``softmax`` is of, in words.
        layers: numbers of the converted ones.
        student, softmax: weights [N, N] a converted layer.
        shapes: of its kernels.
    """

    text: str
    tokens: list[str]
    reference: str
    layers: list[int]
    student: list[list[list[float]]]
    softmax: list[list[list[float]]]
    shapes: list[Shape | None]


@dataclass(frozen=True)
class Section:
    """A run on the page.

    Attributes:
        kind: "conversion", "classifier" or "study", which is the name of its template.
        title: its heading.
        facts: what the template needs.
        row: of the table over all conversions; empty for other kinds.
        error: relative error of the attention after distillation; None for other kinds.
    """

    kind: str
    title: str
    facts: dict[str, Any]
    row: dict[str, str] = field(default_factory=dict)
    error: float | None = None


def conversion_section(title: str, record: Record, look: Look | None) -> Section:
    """Of ``kernelformer convert``, or of one conversion of ``compare``."""
    distilled = [layer["error_distilled"] for layer in record["per_layer"]]
    known = [error for error in distilled if error is not None]
    error = sum(known) / len(known) if known else None
    facts = {"record": record, "summary": summary_rows(record), "plots": conversion_plots(record), "look": _look(look)}
    return Section("conversion", title, facts, _row(record, error), error)


def classifier_section(title: str, record: dict[str, Any], look: Look | None) -> Section:
    """Of ``kernelformer align`` or ``train``."""
    curve = [(step, value) for step, value in record.get("losses", record.get("curve", []))]
    facts = {
        "record": record,
        "curve": Markup(plot_losses("classifier", curve)) if curve else None,
        "projections": projection_plots(record.get("projections", [])),
        "look": _look(look),
    }
    return Section("classifier", title, facts)


def study_section(title: str, summary: str, markdown: str, pictures: Sequence[str]) -> Section:
    """Of ``kernelformer reproduce``: what it printed, and its plots as SVG texts."""
    return Section(
        "study",
        title,
        {"summary": summary, "parts": _parts(markdown), "pictures": [_address(picture) for picture in pictures]},
    )


def render_page(sections: Sequence[Section]) -> str:
    """The page as text: one file that asks nothing of any network."""
    ranked = [(s.title, s.error, 0.0) for s in sections if s.error is not None]
    ranked.sort(key=lambda row: row[1])
    page = (
        templates()
        .get_template("page.html.jinja")
        .render(
            sections=sections,
            rows=[(number, s) for number, s in enumerate(sections, 1) if s.row],
            ranking=Markup(plot_ranking(ranked)) if len(ranked) > 1 else None,
        )
    )
    return _with_own_ids(page)


def _row(record: Record, error: float | None) -> dict[str, str]:
    evaluation, language = record["evaluation"], record["language"]
    kept = "–"
    if evaluation is not None:
        kept = f"cosine {evaluation['agreement']['cosine']:.4f}"
    elif language is not None:
        ratio = language["student"]["perplexity"] / language["teacher"]["perplexity"]
        kept = f"perplexity × {ratio:.3f}"
    cost = record["cost"]
    crossover = "–" if cost is None or cost["models_crossover"] is None else f"{cost['models_crossover']:,.0f}"
    fitting = sum(record["seconds"].get(step, 0.0) for step in ("start", "distilled", "finetuned"))
    return {
        "teacher": record["teacher"],
        "kernel": record["kernel"],
        "features": str(record["num_features"]),
        "attention error": "–" if error is None else f"{error:.3f}",
        "what is kept": kept,
        "faster from N": crossover,
        "fitted in, s": f"{fitting:,.0f}",
    }


def _look(look: Look | None) -> dict[str, Any] | None:
    if look is None:
        return None
    rows = []
    for place in first_middle_last(len(look.layers)):
        layer, shape = look.layers[place], look.shapes[place]
        sides = (look.softmax[place], look.student[place])
        most = max(max(map(max, side)) for side in sides)
        weights = [
            Markup(plot_weights(look.tokens, side, most, f"weights {who} {layer}"))
            for who, side in zip(("softmax", "student"), sides, strict=True)
        ]
        rows.append((layer, *weights, None if shape is None else Markup(plot_shape(shape, f"shape {layer}"))))
    return {"text": look.text, "reference": look.reference, "rows": rows}


def _parts(markdown: str) -> list[dict[str, Any]]:
    """Paragraphs and pipe tables, in order: {"text": ...} or {"head": [...], "rows": [[...]]}."""
    parts: list[dict[str, Any]] = []
    for block in re.split(r"\n\s*\n", markdown.strip()):
        lines = block.splitlines()
        cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
        if len(lines) > 1 and re.fullmatch(r"[\s|:-]+", lines[1]):
            parts.append({"head": cells[0], "rows": cells[2:]})
        elif block:
            parts.append({"text": block})
    return parts


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _with_own_ids(page: str) -> str:
    """Ids inside each <svg> made its own: pictures of one kind in two runs have the same."""
    number = 0

    def own(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>p{number}-", match[0])

    return re.sub(r"<svg.*?</svg>", own, page, flags=re.DOTALL)
