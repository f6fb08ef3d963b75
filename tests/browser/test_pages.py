"""Pages in a real browser: no complaint, nothing asked of anybody, readable on a telephone."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("transformers")

import kernelformer as kf
from kernelformer import hf, learn
from kernelformer.bench.look import Shape
from kernelformer.bench.page import Look, classifier_section, conversion_section, render_page, study_section
from kernelformer.bench.report import write_report

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["index.html", "api/", "concepts/", "results/", "papers/", "performance/", "guides/convert-an-encoder/", "log/"]


@pytest.fixture(scope="module")
def made_up():
    """The record of tests/bench, which conftest.py there makes."""
    spec = importlib.util.spec_from_file_location("made_up", ROOT / "tests" / "bench" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_record()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The documentation, built strictly and served; its address."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_of_a_conversion(browser, made_up, tmp_path, width):
    _, page = write_report(tmp_path, made_up)
    seen = browser.open(page.as_uri(), width)
    assert (seen.requests, seen.complaints) == ([page.as_uri()], [])
    assert seen.overflow <= 0


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_over_runs(browser, made_up, tmp_path, width):
    weights = [[[0.5, 0.5], [0.1, 0.9]]]
    shape = Shape([0.0, 1.0], [1.0, 0.6], [1.0, 0.7], 0.5)
    look = Look("a long text", ["a", "long"], "softmax", [0], weights, weights, [shape])
    classifier = {
        "verb": "align", "classes": ["a", "b"], "kernel": "favor", "parameters": 10, "seconds": 1.0,
        "texts": {"train": 3, "validation": 1, "test": 1}, "curve": [[0, 1.0], [1, 0.5]],
        "held_out_energy": {"before": 0.0, "after": -1.0}, "nearest_pair": {"before": None, "after": None},
        "projections": made_up["projections"],
    }  # fmt: skip
    wide = "| " + " | ".join(f"a long head {i}" for i in range(12)) + " |\n|" + " --- |" * 12 + "\n|" + " 1 |" * 12
    picture = "<svg xmlns='http://www.w3.org/2000/svg' width='900' height='20'><rect width='900' height='9'/></svg>"
    sections = [
        conversion_section("first", made_up, look),
        conversion_section("second", made_up, None),
        classifier_section("third", classifier, look),
        study_section("fourth", "A claim.", wide, [picture]),
    ]
    page = tmp_path / "page.html"
    page.write_text(render_page(sections), encoding="utf-8")
    seen = browser.open(page.as_uri(), width)
    assert (seen.requests, seen.complaints) == ([page.as_uri()], [])
    assert seen.overflow <= 0


def test_a_page_that_misbehaves_is_seen(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<div style='width:5000px'>x</div><img src='http://127.0.0.1:9/x.png'><script>console.error('no')</script>"
    )
    seen = browser.open(page.as_uri(), 390)
    assert "http://127.0.0.1:9/x.png" in seen.requests
    assert any("no" in complaint for complaint in seen.complaints)
    assert seen.overflow > 1000


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_the_documentation(browser, site, page, width):
    seen = browser.open(site + page, width)
    assert [request for request in seen.requests if not request.startswith(site)] == []
    assert seen.complaints == []
    assert seen.overflow <= 0


def test_the_api_page_has_all_that_is_public(browser, site):
    browser.open(site + "api/", 1280)
    script = "JSON.stringify([...document.querySelectorAll('[id^=\"kernelformer.\"]')].map(x => x.id))"
    ids = json.loads(browser.call("Runtime.evaluate", expression=script)["result"]["value"])
    named = {name.rpartition(".")[2] for name in ids}
    modules = {"engine", "feature_maps", "testing"}
    public = {*kf.__all__, *kf.engine.__all__, *kf.feature_maps.__all__, *learn.__all__, *hf.__all__}
    assert public - modules - named <= {"FEATURE_MAPS"}
