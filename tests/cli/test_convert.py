"""The main job on a tiny encoder: what it writes, how it resumes, and what it refuses before any work."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModel

import kernelformer as kf
from kernelformer.cli import converting

FAST = ("--distill-steps", 4, "--finetune-steps", 4, "--batch-size", 8, "--num-features", 16, "--no-measure")


@pytest.fixture
def convert(kernelformer, encoder, reviews):
    def call(output, *more):
        return kernelformer("convert", encoder, "--data", reviews, "-o", output, "--held-out", 30, *FAST, *more)

    return call


def test_writes_a_model_and_its_report(convert, encoder, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(out, "--label-column", "label", "--group-column", "film", "--kernel", "flexformer_n") == 0
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith("tok")) == [
        "config.json",
        "model.safetensors",
        "options.toml",
        "report.html",
        "report.json",
    ]
    record = json.loads((out / "report.json").read_text())
    assert record["kernel"] == "flexformer_n"
    assert record["data"]["held_out_texts"] == 30
    assert set(record["evaluation"]["cosine_by_stage"]) == {"start", "distilled", "finetuned"}
    assert record["evaluation"]["probe"]["teacher"] > 0.5
    assert len(record["per_layer"]) == 2
    assert "Embedding cosine" in capsys.readouterr().out
    ids = torch.tensor([[2, 6, 7, 8, 3]])
    with torch.no_grad():
        student, teacher = kf.load(out)(ids), AutoModel.from_pretrained(encoder)(ids)
    assert torch.cosine_similarity(student.last_hidden_state, teacher.last_hidden_state, dim=-1).mean() > 0.5


def test_the_same_seed_gives_the_same_bits(convert, tmp_path):
    for name in ("one", "two"):
        assert convert(tmp_path / name) == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("broken", ["_distill", "_finetune", "_evaluate"])
def test_an_interrupted_run_resumes_to_the_same_bits(convert, tmp_path, monkeypatch, capsys, broken):
    assert convert(tmp_path / "whole") == 0

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(converting, broken, stop)
        assert convert(tmp_path / "out") == 1
    assert "the same command goes on" in capsys.readouterr().err
    assert not (tmp_path / "out" / "report.json").exists()
    assert convert(tmp_path / "out", "--seed", 1) == 2
    assert "other settings (seed=0)" in capsys.readouterr().err
    assert convert(tmp_path / "out") == 0
    assert not (tmp_path / "out" / ".work").exists()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(convert, tmp_path, capsys):
    assert convert(tmp_path / "out", "--dry-run") == 0
    told = capsys.readouterr().out
    assert "2 layers to hedgehog" in told
    assert "30 held out" in told
    assert not (tmp_path / "out").exists()


def test_layers_and_options_reach_the_model(convert, tmp_path):
    assert convert(tmp_path / "out", "--layers", "1", "--kernel", "flexformer_n", "--option", "floor=0.2") == 0
    kernels = kf.hf.kernels(kf.load(tmp_path / "out"))
    assert [kernel.feature_map.floor for kernel in kernels.values()] == [0.2]


def test_finetune_none_stops_at_the_kernels(convert, tmp_path, encoder):
    assert convert(tmp_path / "out", "--finetune", "none") == 0
    student, teacher = kf.load(tmp_path / "out"), AutoModel.from_pretrained(encoder)
    for name, value in teacher.state_dict().items():
        assert torch.equal(student.state_dict()[name], value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--kernel", "hedgehg"), "near: hedgehog"),
        (("--num-features", 7), "even"),
        (("--label-column", "colour"), "colour"),
        (("--text-column", "body"), "body"),
        (("--held-out", 120), "held_out"),
        (("--finetune", "some"), "none, kernels, qkv, all"),
        (("--precision", "float8"), "auto, float32, bfloat16"),
        (("--layers", "0,x"), "numbers with commas"),
        (("--layers", "9"), "0 … 1"),
        (("--option", "floor"), "name=value"),
        (("--option", "colour=1"), "options it does not take"),
        (("--batch-size", 0), "batch_size"),
        (("--data", "nowhere.csv"), "nowhere.csv"),
        (("--window", 4), "for decoders"),
        (("--kernel", "rfa_gated"), "for decoders"),
    ],
)
def test_bad_requests_are_one_line_and_code_2(convert, tmp_path, capsys, more, message):
    assert convert(tmp_path / "out", *more) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["convert", "compare", "eval"])
def test_without_texts_the_option_is_named(kernelformer, encoder, tmp_path, capsys, verb):
    assert kernelformer(verb, encoder, *(() if verb == "eval" else ("-o", tmp_path / "out"))) == 2
    assert "--data" in capsys.readouterr().err


def test_the_output_folder_must_be_free_or_ours(convert, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    assert convert(out) == 2
    assert "something else" in capsys.readouterr().err
    assert (out / "thesis.tex").read_text() == "mine"
    done = tmp_path / "done"
    assert convert(done) == 0
    assert convert(done) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert convert(done, "--overwrite") == 0


@pytest.mark.parametrize(
    ("model", "told"),
    [(".", "no folder with a config.json"), ("gone", "there is no model folder"), ("runs/gone", "on the hub")],
)
def test_what_is_no_model_is_refused(kernelformer, reviews, tmp_path, capsys, model, told):
    model = model if "/" in model else tmp_path / model
    for words in (
        ("convert", model, "--data", reviews, "-o", tmp_path / "out"),
        ("generate", model, "--prompt", "a film"),
    ):
        assert kernelformer(*words) == 2
        error = capsys.readouterr().err.strip()
        assert told in error and len(error.splitlines()) == 1


def test_too_few_texts_are_refused(kernelformer, encoder, tmp_path, capsys):
    (tmp_path / "few.txt").write_text("a film\nthe plot\n")
    assert kernelformer("convert", encoder, "--data", tmp_path / "few.txt", "-o", tmp_path / "out") == 2
    assert "at least 20" in capsys.readouterr().err
