"""What the machine has, and what would run."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

import kernelformer as kf
from kernelformer.cli.extras import EXTRAS
from kernelformer.cli.option_files import read_table


def test_doctor_names_what_is_missing_and_how_to_get_it(kernelformer, monkeypatch, capsys):
    real = metadata.version

    def version(name):
        if name == "peft":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert kernelformer("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    packages = {row["name"]: row for row in found["packages"]}
    assert packages["transformers"]["state"] == real("transformers")
    assert packages["peft"]["state"] == "missing"
    assert "pip install 'kernelformer[lora]'" in packages["peft"]["purpose"]
    backends = [row["backend"] for row in found["attention"]]
    assert backends[0] == "quadratic"
    assert backends[3] == "step"
    assert kernelformer("doctor") == 0
    assert "'kernelformer[lora]'" in capsys.readouterr().out


def test_every_extra_that_is_named_exists():
    project = read_table(Path(__file__).parents[2] / "pyproject.toml")["project"]
    assert {extra for extra, _ in EXTRAS.values()} <= set(project["optional-dependencies"])


@pytest.mark.parametrize("kernel", sorted(kf.FEATURE_MAPS))
def test_explain_every_kernel_without_computing_it(kernelformer, kernel, capsys):
    assert kernelformer("explain", kernel, "--length", 1_000_000, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backend"] in ("blocks", "whole")
    assert found["features"] >= 1


def test_explain_follows_the_call(kernelformer, capsys):
    backends = []
    for arguments in (["--length", 16], ["--length", 1, "--causal"], ["--length", 65_536, "--training"]):
        assert kernelformer("explain", "hedgehog", *arguments, "--json") == 0
        backends.append(json.loads(capsys.readouterr().out)["backend"])
    assert backends == ["quadratic", "step", "recompute"]
    assert kernelformer("explain", "hedgehog") == 0
    assert "reason" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "no-such"],
        ["explain", "softmax"],
        ["explain", "elu", "--length", "0"],
        ["explain", "elu", "--device", "tpu"],
        ["bench", "--device", "tpu"],
        ["bench", "--threads", "0"],
    ],
)
def test_refusals_in_one_line(kernelformer, arguments, capsys):
    assert kernelformer(*arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("kernelformer: ") and len(told.splitlines()) == 1
