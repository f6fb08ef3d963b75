"""One page over runs of every kind, and what is no run."""

from __future__ import annotations

import base64
import json
import re

import pytest

FAST = ("--held-out", 30, "--batch-size", 8, "--max-length", 16)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def made(kernelformer, encoder, reviews, runs):
    """Runs of compare, convert (with its teacher to be read) and align, made once."""
    if not (runs / "page").exists():
        steps = ("--distill-steps", 2, "--finetune", "none")
        data = (encoder, reviews, *FAST)
        assert kernelformer("compare", *data, *steps, "--kernels", "elu,hedgehog", "-o", runs / "compared") == 0
        one = ("--kernel", "flexformer_s", "--num-features", 16, "--no-measure", "-o", runs / "spectral")
        assert kernelformer("convert", *data, *steps, *one) == 0
        two = ("--label-column", "label", "--steps", 2, "--num-features", 8, "-o", runs / "aligned")
        assert kernelformer("align", *data, *two) == 0
        (runs / "studied").mkdir()
        (runs / "studied" / "anisotropy.md").write_text("Said\n\n| a | b |\n| --- | ---: |\n| <x> | 2 |\n")
        (runs / "studied" / "anisotropy-plot.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
        (runs / "page").mkdir()
    return runs


def test_a_page_over_runs_of_every_kind(kernelformer, made, capsys):
    page = made / "page" / "all.html"
    folders = [made / name for name in ("compared", "spectral", "aligned", "studied")]
    capsys.readouterr()
    assert kernelformer("report", *folders, "-o", page, "--text", "a good film", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sections"] == ["elu-0", "hedgehog-0", "spectral", "align: aligned", "reproduce: anisotropy"]
    html = page.read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', html)) <= {(i, "") for i in ids} | {("", i) for i in ids}
    for words in (
        "the teacher's softmax", "softmax of the student's own queries and keys", "Shape of the kernel, layer 1",
        "Places, layer 0", "Particles, layer 0", "energy", "Attention error after the kernels", "<td>&lt;x&gt;</td>",
        base64.b64encode(b"<svg xmlns").decode()[:12],
    ):  # fmt: skip
        assert words in html.replace("&#39;", "'"), words
    assert not re.search(r"<(script|iframe|object|link|base)\b|@import", html)


def test_what_is_no_run(kernelformer, made, tmp_path, capsys):
    assert kernelformer("report", tmp_path) == 2
    assert "holds no finished run" in capsys.readouterr().err
    (tmp_path / "report.json").write_text("{")
    assert kernelformer("report", tmp_path) == 2
    assert "is not JSON" in capsys.readouterr().err
    (tmp_path / "report.json").write_text('{"schema": 1}')
    assert kernelformer("report", tmp_path) == 2
    assert "another version" in capsys.readouterr().err
