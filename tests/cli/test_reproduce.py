"""Claims are listed, chosen and refused by name; each has its defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernelformer as kf
from kernelformer.bench import coulomb_synthetic, coulomb_synthetic_tables
from kernelformer.cli.claims import CLAIMS, Claim
from kernelformer.cli.reproduce import reproduce
from kernelformer.cli.verb import Terminal


def test_the_claims_are_listed(kernelformer, capsys):
    assert kernelformer("reproduce") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(CLAIMS)


def test_commands_of_the_docs_are_claims_and_scales():
    page = (Path(__file__).parents[2] / "docs" / "papers.md").read_text(encoding="utf-8")
    commands = re.findall(r"`kernelformer reproduce ([\w-]+)(?: --scale ([\w-]+))?", page)
    assert commands and {name for name, _ in commands} <= set(CLAIMS)
    assert [(name, scale) for name, scale in commands if scale and scale not in CLAIMS[name].scales] == []


def test_no_claim_is_the_beginning_of_another():
    """Files are found by the name they begin with."""
    assert [(a, b) for a in CLAIMS for b in CLAIMS if a != b and b.startswith(a)] == []


@pytest.fixture
def runs(monkeypatch):
    seen = []

    def measure(run):
        seen.append(run)
        run.study({}, lambda rows: {"it is": "so"})

    monkeypatch.setitem(CLAIMS, "told", Claim("a paper: it is so", 4, measure, ("small", "paper")))
    return seen


def test_a_claim_is_handed_what_was_asked(runs, tmp_path):
    reproduce(Terminal(), "told", str(tmp_path / "deep" / "out"))
    reproduce(Terminal(), "told", str(tmp_path), 3, "paper")
    assert [(run.name, run.seeds, run.scale) for run in runs] == [("told", 4, "small"), ("told", 3, "paper")]
    assert runs[0].folder.is_dir()
    runs[1].write_plots({"one": "<svg/>"})
    assert (tmp_path / "told-paper-one.svg").read_text() == "<svg/>"
    assert (tmp_path / "told-paper.json").is_file()


def test_refusals(runs, tmp_path):
    with pytest.raises(kf.KernelformerError, match=r"no claim 'absent'; there are: .*told"):
        reproduce(Terminal(), "absent", str(tmp_path))
    with pytest.raises(kf.KernelformerError, match="at least 2"):
        reproduce(Terminal(), "told", str(tmp_path), 1)
    with pytest.raises(kf.KernelformerError, match="no scale 'huge'; there are: small, paper"):
        reproduce(Terminal(), "told", str(tmp_path), 3, "huge")
    with pytest.raises(kf.KernelformerError, match=r"told takes no --data; these do: .*lra"):
        reproduce(Terminal(), "told", str(tmp_path), data="folder")
    assert runs == []


def test_the_synthetic_study_is_written_and_its_rows_forgotten(kernelformer, tmp_path, monkeypatch, capsys):
    def measure(seeds, name, size, rows, say):
        assert (seeds, name, size) == (3, "paper", coulomb_synthetic.SCALES["paper"])
        rows.get("a", lambda: {"value": 1})
        assert (tmp_path / "coulomb-synthetic-paper.rows.jsonl").is_file()
        return {"scale": name}

    monkeypatch.setattr(coulomb_synthetic, "measure_synthetic", measure)
    monkeypatch.setattr(coulomb_synthetic_tables, "synthetic_markdown", lambda study: f"tables of {study['scale']}")
    monkeypatch.setattr(coulomb_synthetic_tables, "synthetic_plots", lambda study: {"f1": "<svg/>"})
    options = ("-o", tmp_path, "--seeds", 3, "--scale", "paper")
    assert kernelformer("reproduce", "coulomb-synthetic", *options) == 0
    assert capsys.readouterr().out == "tables of paper\n"
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == [
        "coulomb-synthetic-paper-f1.svg",
        "coulomb-synthetic-paper.json",
        "coulomb-synthetic-paper.md",
        "coulomb-synthetic-paper.options.toml",
    ]
