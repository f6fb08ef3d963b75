"""The study runs, goes on where it stopped, repeats by its seeds; tables and verdicts say what was measured."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sklearn")

from sklearn.dummy import DummyClassifier

from kernelformer.bench import coulomb_synthetic
from kernelformer.bench.coulomb_synthetic import BEST, SCALES, Scale, measure_synthetic, slope
from kernelformer.bench.coulomb_synthetic_methods import PAPER_WEIGHTS, budget_methods, noise_methods
from kernelformer.bench.coulomb_synthetic_tables import (
    claims_markdown,
    noise_markdown,
    synthetic_markdown,
    synthetic_plots,
)
from kernelformer.bench.rows import Rows
from kernelformer.learn.classifier import KernelClassifier
from kernelformer.tasks.synthetic import NOISE_LEVELS, draw_synthetic

LOW, SOME, MORE = NOISE_LEVELS[0], NOISE_LEVELS[4], NOISE_LEVELS[5]


def cell(part, method, noise, accuracy, value=None):
    scores = [accuracy - 0.01, accuracy + 0.01]
    return {
        "part": part,
        "method": method,
        "noise": noise,
        "value": value,
        "accuracy": scores,
        "f1": [score + 0.1 for score in scores],
        "macro_f1": scores,
    }


@pytest.fixture
def study():
    """Made up: particles 0.7, larger class 0.6, all others 0.65 at any noise; λ = 0.5 best; 64 features lose a bit."""
    methods = [BEST, *noise_methods(1)]
    known = {"particles": 0.7, "larger class": 0.6}
    cells = [cell("noise", name, noise, known.get(name, 0.65)) for noise in (LOW, SOME, MORE) for name in methods]
    for noise in (LOW, SOME, MORE):
        for name in (
            f"{settings}, {form}" for settings in ("printed settings", "defaults") for form in ("log", "Coulomb")
        ):
            cells += [cell("weight", name, noise, 0.7 if weight == 0.5 else 0.6, weight) for weight in PAPER_WEIGHTS]
        for name in budget_methods(16):
            cells += [cell("budget", name, noise, 0.5 + count / 1280, count) for count in (64, 256)]
    spreads = [
        {"weight": weight, "num_particles": count, "spread": count**-0.5}
        for weight in (0.0, 0.001, 0.5)
        for count in (16, 64)
    ]
    return {"scale": "small", "seeds": 2, "cells": cells, "spreads": spreads}


def rows_of(markdown):
    return [[entry.strip() for entry in line.strip("|").split("|")] for line in markdown.splitlines()]


def test_a_table_has_a_row_a_method_and_a_column_a_noise(study):
    table = rows_of(noise_markdown(study, "f1"))
    assert table[0] == ["σ", "1e-05", "0.28", "3.6"]
    assert ["particles", *["0.800 ± 0.014"] * 3] in table
    assert len(table) == 2 + 1 + len(noise_methods(1))


def test_verdicts_follow_the_figures(study):
    found = {claim: (here, verdict) for claim, _, here, verdict in rows_of(claims_markdown(study))}
    above = found["accuracy: particles > svm_rbf"]
    assert above == ("+5.0 [+5.0, +5.0] points", "seen here")
    assert found["accuracy: random features > importance sampled"][1] == "undecided"
    kept, verdict = found["particles: 64 features keep 90 % of the accuracy of 256"]
    assert kept.startswith("78.6%")
    assert kept.endswith("above the larger class -50%")
    assert verdict == "less is kept"
    (repulsion,) = (value for claim, value in found.items() if claim.startswith("defaults, log"))
    assert repulsion == ("+10.0 [+10.0, +10.0] points, at 0.5; the best is 0.5", "seen here")
    spread, verdict = found["λ = 0: the spread of the kernel falls as N grows"]
    assert spread.startswith("slope -0.50") and verdict == "seen here"
    assert slope(study["spreads"][:2]) == pytest.approx(-0.5)


def test_all_tables_are_printed(study):
    printed = synthetic_markdown(study)
    assert printed.count("| --- |") == 5
    assert "| particles; σ = 1e-05 | 0.550 ± 0.014 | 0.700 ± 0.014 | 78.6% | -50% |" in printed


def test_the_reverse_is_called_so(study):
    for entry in study["cells"]:
        if entry["method"] == "particles":
            entry["accuracy"] = [score - 0.1 for score in entry["accuracy"]]
    found = {row[0]: row[3] for row in rows_of(claims_markdown(study))}
    assert found["accuracy: particles > svm_rbf"] == "the reverse is seen"


def test_plots_name_their_lines(study):
    plots = synthetic_plots(study)
    assert set(plots) == {"accuracy", "f1", "weight", "budget"}
    assert ">particles, tuned<" in plots["accuracy"]
    assert ">defaults, log<" in plots["weight"]


TINY = Scale((LOW,), (SOME,), 2, (), (64, 256), 2, (4, 16), 20, 50)


class StoppedError(Exception):
    pass


def stand_ins(names):
    """Quick methods in the place of all, of which one still learns."""

    def learns(seed):
        return KernelClassifier(8, max_steps=2, random_state=seed)

    return {name: learns if name == "particles" else lambda _: DummyClassifier() for name in names}


def test_an_interrupted_study_ends_as_an_unbroken_one(tmp_path, monkeypatch):
    monkeypatch.setattr(coulomb_synthetic, "noise_methods", lambda steps: stand_ins(noise_methods(steps)))
    monkeypatch.setattr(coulomb_synthetic, "budget_methods", lambda count: stand_ins(budget_methods(count)))
    for name in ("particles", "particles_as_printed"):
        monkeypatch.setattr(coulomb_synthetic, name, lambda *_: stand_ins(["x"])["x"])
    monkeypatch.setattr(coulomb_synthetic, "PAPER_WEIGHTS", (0.0, 0.5))
    whole = measure_synthetic(2, "tiny", TINY, Rows(tmp_path / "whole.jsonl", {}))
    seen = []

    def stop(line):
        seen.append(line)
        if len(seen) == 15:
            raise StoppedError

    with pytest.raises(StoppedError):
        measure_synthetic(2, "tiny", TINY, Rows(tmp_path / "broken.jsonl", {}), stop)
    kept = (tmp_path / "broken.jsonl").read_text().splitlines()
    resumed = measure_synthetic(2, "tiny", TINY, Rows(tmp_path / "broken.jsonl", {}))
    assert len(kept) == 15
    assert (tmp_path / "broken.jsonl").read_text().splitlines()[:15] == kept
    assert resumed == whole == json.loads(json.dumps(whole))
    assert [row["num_particles"] for row in whole["spreads"]] == [4, 16] * 3
    known = [found["accuracy"] for found in whole["cells"] if found["method"] == BEST]
    assert len(known) == 1 and len(known[0]) == 2


@pytest.mark.parametrize("name", ["logistic", "svm_rbf", "random features", "importance sampled", "particles"])
def test_each_method_learns_what_is_easy(name):
    drawn = draw_synthetic(400, 0.0, 0)
    labels = (drawn.inputs[:, 0] > 0.3).astype(int)
    model = noise_methods(20)[name](0).fit(drawn.inputs[:150], labels[:150])
    assert model.score(drawn.inputs[150:], labels[150:]) > 0.75


def test_printed_settings_are_the_paper_s():
    made = noise_methods(2000)["particles, printed settings"](3).get_params()
    wanted = {"num_particles": 300, "num_features": 100, "step_size": 30.0, "inverse_temperature": 100.0}
    wanted |= {"repulsion_weight": 0.5, "max_norm": 5.0, "max_drift": 1.0, "max_steps": 2000, "random_state": 3}
    assert wanted.items() <= made.items()


def test_tuning_never_sees_the_rows_to_judge_by():
    """The search is over folds of what it is given: parameters are the same whatever else there is."""
    drawn = draw_synthetic(60, 0.0, 0)
    search = noise_methods(1)["svm_rbf, tuned"](0)
    search.fit(drawn.inputs[:40], drawn.labels[:40])
    assert search.best_estimator_.shape_fit_ == (40, 5)


def test_sizes():
    assert SCALES["paper"].noises == NOISE_LEVELS
    assert set(SCALES["small"].few) <= set(SCALES["small"].noises)
