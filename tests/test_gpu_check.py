"""scripts/gpu_check.py goes through its steps on a CPU, and finds what is wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

import kernelformer as kf

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "gpu_check.py"


@pytest.fixture(scope="module")
def gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dry_run(gpu_check, tmp_path, capsys):
    assert gpu_check.main(["--dry-run", "-o", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert "no figure of a device" in result["device"]
    assert result["conversion"]["right"]
    rows = result["correctness"]
    assert len(rows) == len(gpu_check.MAPS) * 2 * 2 * 2
    assert all(row["right"] for row in rows if row["backend"] == "torch")
    assert all("not on a CUDA device" in row["refused"] for row in rows if row["backend"] == "triton")
    assert {row["form"] for timed in result["timings"] for row in timed["rows"]} == {
        "bidirectional", "causal", "training"
    }  # fmt: skip
    assert all(row["copy_share"] > 0 for timed in result["timings"] for row in timed["rows"])
    text = (tmp_path / "gpu.md").read_text()
    for expected in ("× sdpa", "Share of the copy floor", "24 combinations are right, 0 wrong"):
        assert expected in text
    assert text in capsys.readouterr().out


def test_what_is_wrong_is_found(gpu_check, tmp_path, monkeypatch):
    def build(dim, heads):
        feature_map = kf.feature_maps.Favor(dim, heads, 2 * dim)
        true = feature_map.phi
        # Wrong in float32 alone: the reference computes in float64.
        feature_map.phi = lambda x: true(x if x.dtype == torch.float64 else 1.1 * x)
        return feature_map

    monkeypatch.setattr(gpu_check, "MAPS", {"favor": build})
    assert gpu_check.main(["--dry-run", "-o", str(tmp_path)]) == 1
    assert "wrong: {'map': 'favor'" in (tmp_path / "gpu.md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(gpu_check, capsys):
    assert gpu_check.main([]) == 2
    assert "there is no CUDA device" in capsys.readouterr().out
