"""The demo takes every kernel, those of a fixed width too."""

from __future__ import annotations

import pytest


@pytest.mark.model
@pytest.mark.parametrize("kernel", ["elu", "flexformer_n"])
def test_a_dry_run(kernelformer, tmp_path, capsys, kernel):
    assert kernelformer("demo", "--kernel", kernel, "--dry-run", "-o", tmp_path / "out") == 0
    assert f"6 layers to {kernel}" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.model
def test_a_dry_run_of_several(kernelformer, tmp_path, capsys):
    words = ("demo", "--kernel", "elu,hedgehog", "--seeds", "0,1", "--dry-run", "-o", tmp_path / "out")
    assert kernelformer(*words) == 0
    told = capsys.readouterr().out
    assert "0 of 4 conversions" in told and "6 layers to elu" in told
