"""Kernels ranked on one model; finished ones are not done again."""

from __future__ import annotations

import json

FAST = ("--distill-steps", 3, "--batch-size", 8, "--num-features", 16, "--held-out", 30)


def test_ranks_kernels_by_distilled_error(kernelformer, encoder, reviews, tmp_path, capsys):
    def compare(*more):
        arguments = ("compare", encoder, "--data", reviews, "-o", tmp_path / "out", "--kernels", "elu,hedgehog", *FAST)
        return kernelformer(*arguments, "--seeds", "0,1", *more)

    assert compare("--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["kernel"] for row in rows} == {"elu", "hedgehog"}
    assert rows[0]["error"] <= rows[1]["error"]
    assert all(row["seeds"] == 2 and row["error_spread"] > 0 for row in rows)
    written = (tmp_path / "out" / "elu-0" / "report.json").stat().st_mtime_ns
    assert compare() == 0
    assert (tmp_path / "out" / "elu-0" / "report.json").stat().st_mtime_ns == written
    assert "hedgehog" in capsys.readouterr().out
    assert (tmp_path / "out" / "compare.svg").read_text().startswith("<svg")


def test_a_kernel_that_does_not_exist_stops_all_before_work(kernelformer, encoder, reviews, tmp_path, capsys):
    arguments = ("compare", encoder, "--data", reviews, "-o", tmp_path / "out", "--kernels", "elu,hedgeho", *FAST)
    assert kernelformer(*arguments) == 2
    assert "near: hedgehog" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_list_names_every_kernel(kernelformer, capsys):
    assert kernelformer("list", "--json") == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert "flexformer_n" in names


def test_list_shows_brackets_of_formulas(kernelformer, capsys):
    assert kernelformer("list") == 0
    assert "[max(x_i, 0) cos(t_i)" in " ".join(capsys.readouterr().out.split())
