"""kernelformer bench: tables or JSON, and a folder with both and the plots."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("matplotlib")

FAST = ("--lengths", "8,16", "--kernels", "elu", "--seconds", 0, "--num-heads", 1, "--head-dim", 8)


def test_tables_json_and_plots(kernelformer, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    folder = tmp_path / "out"
    rivals = ("--rivals", "sdpa,flash-linear-attention")
    assert kernelformer("bench", *FAST, "--forms", "causal,step", *rivals, "-o", folder) == 0
    shown = capsys.readouterr().out
    for expected in ("× sdpa", "/ floor", "Faster from N =", "flash-linear-attention needs a CUDA device"):
        assert expected in shown
    result = json.loads((folder / "bench.json").read_text())
    assert [(row["form"], row["length"]) for row in result["rows"]] == [
        ("causal", 8), ("causal", 16), ("step", 8), ("step", 16)
    ]  # fmt: skip
    plot = (folder / "bench-time.svg").read_text()
    for expected in ("causal", "step", "floor of elu", "sdpa"):
        assert f">{expected}<" in plot
    assert not (folder / "bench-memory.svg").exists()


def test_json_alone(kernelformer, capsys):
    assert kernelformer("bench", *FAST, "--forms", "bidirectional", "--rivals", "none", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["setting"]["rivals"] == []
    assert result["crossovers"] == []


def test_memory_is_plotted(kernelformer, tmp_path):
    arguments = ("bench", *FAST, "--forms", "step", "--rivals", "sdpa", "--memory", "-o", tmp_path)
    assert kernelformer(*arguments) == 0
    assert ">MiB<" in (tmp_path / "bench-memory.svg").read_text()


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("--forms", "diagonal", "forms: expected"),
        ("--lengths", "a", "--lengths is numbers"),
        ("--kernels", "elo", "elu"),
    ],
)
def test_what_cannot_be_measured(kernelformer, capsys, option, given, message):
    assert kernelformer("bench", option, given) == 2
    assert message in capsys.readouterr().err
