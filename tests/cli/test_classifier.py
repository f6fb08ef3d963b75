"""align and train on a tiny encoder: what they write, how they resume, and what they refuse before any work."""

from __future__ import annotations

import json

import pytest
import torch

import kernelformer as kf
from kernelformer.cli import classifying
from kernelformer.hf import kernels

ALIGN = ("--steps", 4, "--num-features", 8, "--batch-size", 16, "--held-out", 20)
TRAIN = ("--epochs", 1, "--batch-size", 16, "--held-out", 20, "--learning-rate", 0.01, "--precision", "float32")


@pytest.fixture
def align(kernelformer, encoder, reviews):
    def call(output, *more):
        given = ("align", encoder, "--data", reviews, "--label-column", "label")
        return kernelformer(*given, "-o", output, *ALIGN, *more)

    return call


@pytest.fixture
def train(kernelformer, encoder, reviews):
    def call(model, output, *more):
        given = ("train", model or encoder, "--data", reviews, "--label-column", "label")
        return kernelformer(*given, "-o", output, *TRAIN, *more)

    return call


def test_align_then_train_leaves_the_particles_where_they_were(align, train, encoder, tmp_path, capsys):
    assert align(tmp_path / "a", "--shared-qk") == 0
    assert "nearest pair" in capsys.readouterr().out
    record = json.loads((tmp_path / "a" / "report.json").read_text())
    assert record["kernel"] == "softmaxfeat" and record["shared_qk"] and record["classes"] == ["fresh", "rotten"]
    assert record["texts"]["validation"] == record["texts"]["test"] == 20 and record["mean_move"] > 0
    assert train(tmp_path / "a", tmp_path / "b") == 0
    trained = json.loads((tmp_path / "b" / "report.json").read_text())
    assert trained["test"]["texts"] == 20 and 0 <= trained["test"]["ece"] <= 1
    assert "balanced accuracy" in capsys.readouterr().out
    aligned, after = kf.load(tmp_path / "a"), kf.load(tmp_path / "b")
    for before, found in zip(kernels(aligned).values(), kernels(after).values(), strict=True):
        assert torch.equal(before.feature_map.omega, found.feature_map.omega)
    assert after.config.id2label == {0: "fresh", 1: "rotten"}
    assert not torch.equal(aligned.classifier.weight, after.classifier.weight)
    assert (tmp_path / "b" / "tokenizer.json").is_file() and not (tmp_path / "b" / ".work").exists()


def test_a_fresh_model_and_plain_softmax(align, train, tmp_path):
    assert align(tmp_path / "a", "--fresh", "small", "--kernel", "favor", "--also", "norms and values") == 0
    assert type(kf.load(tmp_path / "a")).__name__ == "BertForMeanClassification"
    assert train(tmp_path / "a", tmp_path / "b") == 0
    assert train(None, tmp_path / "c") == 0
    record = json.loads((tmp_path / "c" / "report.json").read_text())
    assert record["kernel"] is None and len(record["validation_accuracy"]) == 1
    assert train(None, tmp_path / "d", "--fresh", "small", "--kernel", "softmax", "--shared-qk") == 0


def test_pairs_are_classified_as_pairs(train, tmp_path, capsys):
    assert train(None, tmp_path / "a", "--pair-column", "label") == 0
    pairs = json.loads((tmp_path / "a" / "report.json").read_text())
    assert train(None, tmp_path / "b") == 0
    texts = json.loads((tmp_path / "b" / "report.json").read_text())
    assert pairs["texts"] == texts["texts"] and pairs["losses"] != texts["losses"]
    assert train(None, tmp_path / "c", "--pair-column", "second") == 2
    assert "no text column 'second'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["align", "train"])
def test_an_interrupted_run_goes_on_to_the_same_bits(align, train, tmp_path, monkeypatch, capsys, verb):
    def call(folder, *more):
        return align(folder, *more) if verb == "align" else train(None, folder, "--kernel", "hedgehog", *more)

    assert call(tmp_path / "whole") == 0

    def stop(*_, **__):
        raise KeyboardInterrupt

    for broken in ("align" if verb == "align" else "train_classifier", "_record"):
        with monkeypatch.context() as patch:
            patch.setattr(classifying, broken, stop)
            assert call(tmp_path / "out") == 1
        assert "the same command goes on" in capsys.readouterr().err
        assert not (tmp_path / "out" / "report.json").exists()
    assert call(tmp_path / "out", "--seed", 1) == 2
    assert "other settings (seed=0)" in capsys.readouterr().err
    assert call(tmp_path / "out") == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]


def test_dry_runs_write_nothing(align, train, tmp_path, capsys):
    assert align(tmp_path / "out", "--dry-run") == 0
    assert "8 heads of 8 particles" in capsys.readouterr().out
    assert train(None, tmp_path / "out", "--dry-run") == 0
    assert "softmax attention" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("verb", "more", "message"),
    [
        ("align", ("--kernel", "elu"), "Elu has none"),
        ("align", ("--kernel", "softmaxfet"), "near: softmaxfeat"),
        ("align", ("--level", "word"), "sequence, token"),
        ("align", ("--also", "all"), "norms and values"),
        ("align", ("--fresh", "huge"), "fresh is one of small"),
        ("align", ("--max-norm", 0), "radius"),
        ("align", ("--steps", 0), "steps must be at least 1"),
        ("align", ("--keep-label", "fresh"), "at least two"),
        ("align", ("--num-features", 0), "num_features"),
        ("train", ("--precision", "float8"), "auto, float32, bfloat16"),
        ("train", ("--shared-qk",), "--kernel softmax"),
        ("train", ("--label-column", "colour"), "colour"),
        ("train", ("--held-out", 110), "held_out"),
    ],
)
def test_bad_requests_are_one_line_and_code_2(align, train, tmp_path, capsys, verb, more, message):
    assert (align(tmp_path / "out", *more) if verb == "align" else train(None, tmp_path / "out", *more)) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_another_kernel_or_other_classes_are_refused(align, train, tmp_path, capsys, reviews):
    assert align(tmp_path / "a") == 0
    assert train(tmp_path / "a", tmp_path / "b", "--kernel", "favor") == 2
    assert "has kernel 'softmaxfeat' already" in capsys.readouterr().err
    assert train(tmp_path / "a", tmp_path / "b", "--label-column", "film") == 2
    assert "classifies as fresh, rotten" in capsys.readouterr().err
    assert align(tmp_path / "a") == 2
    assert "--overwrite" in capsys.readouterr().err
