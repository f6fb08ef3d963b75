"""The record comes back from JSON as it was; the page is whole, quiet and says what the record says."""

from __future__ import annotations

import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from kernelformer.bench import report
from kernelformer.bench.plots import plot_scaling
from kernelformer.bench.record import SCHEMA, Record
from kernelformer.bench.report import render_html, summary_table, write_report

VOID = {"meta", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Collects ids, addresses and text, and checks that tags close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href", "srcset", "action"):
                self.addresses.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_record_comes_back_and_no_other_file_stays(tmp_path: Path, record: Record) -> None:
    folder = tmp_path / "new" / "out"
    paths = write_report(folder, record)
    assert paths == (folder / "report.json", folder / "report.html")
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]
    read = json.loads(paths[0].read_text(encoding="utf-8"))
    assert read.pop("schema") == SCHEMA
    assert read == json.loads(json.dumps(record))


def test_numbers_that_are_not_finite_become_null(tmp_path: Path, record: Record) -> None:
    record["per_layer"][0]["error_start"] = float("nan")
    path, _ = write_report(tmp_path, record)
    assert json.loads(path.read_text(encoding="utf-8"))["per_layer"][0]["error_start"] is None


def test_an_interrupted_write_leaves_the_old_report(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_path, _ = write_report(tmp_path, record)
    before = json_path.read_bytes()

    def refuse(source: Path, target: Path) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", refuse)
    record["seed"] = 1
    with pytest.raises(OSError, match="no space"):
        write_report(tmp_path, record)
    assert json_path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_the_page_closes_its_tags_names_ids_once_and_asks_for_nothing(record: Record) -> None:
    html = render_html(record)
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    assert page.addresses
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses)
    assert set(re.findall(r"url\(([^)]*)\)", html)) <= {f"#{name}" for name in page.ids}
    assert "default-src 'none'" in html
    assert not re.search(r"<(script|iframe|object|link|base)|@import|@font-face", html)
    # Addresses that are left are names of XML vocabularies.
    assert set(re.findall(r"https?://[^\"'\s<]+", html)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_page_is_the_same_for_the_same_record(record: Record) -> None:
    assert render_html(record) == render_html(record)


def test_plots_take_their_colours_from_the_page(record: Record) -> None:
    svgs = re.findall(r"<svg.*?</svg>", render_html(record), re.DOTALL)
    assert len(svgs) == 10
    for svg in svgs:
        ElementTree.fromstring(svg)
        assert set(re.findall(r"#[0-9a-fA-F]{6}\b", svg)) == set()
        assert "var(--ink)" in svg
        assert "viewBox" in svg
        assert not re.search(r"<svg[^>]* width=", svg)


def test_the_page_says_what_the_record_says(record: Record) -> None:
    text = " ".join(" ".join(Page(render_html(record)).words).split())
    for fact in (
        "all-MiniLM-L6-v2 with hedgehog attention",
        "1,200 held-out texts",
        "84.2%",
        "p = 0.61",
        "crossover at",
        "22,713,216, of the kernels 76,032",
        "Memory was not measured: the measurement took longer than 120 s.",
        "split by movie_name",
        "14 empty, 1,083 with other labels",
    ):
        assert fact in text, fact


def test_a_decoder_is_judged_by_prediction(record: Record) -> None:
    figures = {
        "tokens": 5_000, "blocks": 20, "perplexity": 19.5, "perplexity_ci": (18.0, 21.0), "accuracy": 0.41,
        "buckets": [(1, 32, 40.0), (32, 64, 19.0)],
    }  # fmt: skip
    remembered = {"distances": [32, 64], "accuracy": [0.9, 0.5], "novel": [0.3, 0.3], "trials": 16}
    record["evaluation"] = None
    record["window"] = 64
    record["language"] = {
        "teacher": figures | {"perplexity": 18.25},
        "student": figures,
        "perplexity_by_stage": {"start": 99.5, "distilled": 30.0},
        "teacher_recall": remembered,
        "student_recall": remembered | {"accuracy": [0.75, 0.125]},
    }
    html = render_html(record)
    text = " ".join(" ".join(Page(html).words).split())
    for fact in ("18.25", "19.50", "1.068", "99.50", "75.0 %", "12.5 %", "window 64", "Prediction of text"):
        assert fact in text or fact.replace(" %", "%") in text, fact
    assert "Embeddings" not in text


def test_text_from_outside_cannot_become_markup(record: Record) -> None:
    evil = "<script>alert(1)</script>&"
    record["teacher"] = record["student"] = record["machine"] = evil
    record["data"]["sources"] = [evil]
    record["options"] = {evil: evil}
    record["losses"] = {evil: [(0, 1.0), (1, 0.5)]}
    html = render_html(record)
    Page(html)
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_what_was_not_done_is_left_out(record: Record) -> None:
    record["evaluation"]["probe"] = None
    record["evaluation"]["probe_train_texts"] = None
    record["cost"] = None
    record["losses"] = {}
    for layer in record["per_layer"]:
        layer["error_distilled"] = layer["error_finetuned"] = None
    text = " ".join(Page(render_html(record)).words)
    assert "no probe was fitted" in text
    assert "Time and memory" not in text
    assert "Training" not in text.split("How it was made")[0]
    names = [row.name for row in report.summary_rows(record)]
    assert not any("Probe" in name or "faster" in name for name in names)


def test_the_table_has_the_summary(record: Record) -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(summary_table(record))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"Embedding cosine with the teacher +│ +0\.98\d\d │ 95 % 0\.9886 … 0\.9893", text)
    assert re.search(r"student minus teacher, in points +│ +-0\.3 │", text)
    assert "no length up to 512" in text


def test_points_at_zero_are_left_out_of_logarithmic_plots() -> None:
    kernel = [(128.0, 1.0), (256.0, 2.0)]
    for softmax, is_drawn in (
        ([(128.0, 0.0), (256.0, 0.0)], False),
        (None, False),
        ([(128.0, 0.0), (256.0, 1.0)], True),
    ):
        svg = plot_scaling(softmax, kernel, "MiB")
        ElementTree.fromstring(svg)
        assert (">softmax</text>" in svg) is is_drawn
