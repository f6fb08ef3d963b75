"""Metrics of classifiers: cases that can be worked out by hand, and the calibration errors by their definition."""

from __future__ import annotations

import numpy as np
import pytest

import kernelformer as kf
from kernelformer.tasks.metrics import calibration_error, classifier_metrics, compare_classifiers


def test_a_case_worked_out_by_hand():
    positive = np.array([0.9, 0.8, 0.3, 0.6])
    found = classifier_metrics(np.c_[1 - positive, positive], [1, 1, 0, 0])
    assert found["accuracy"] == 0.75
    assert found["mcc"] == pytest.approx((2 * 1 - 1 * 0) / np.sqrt(3 * 2 * 2 * 1))
    assert found["balanced_accuracy"] == 0.75
    assert found["roc_auc"] == found["pr_auc"] == 1.0
    assert found["brier"] == pytest.approx((0.01 + 0.04 + 0.09 + 0.36) / 4)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.7, 0.4]).mean())
    assert found["f1_macro"] == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_calibration_error_is_its_definition():
    generator = np.random.default_rng(0)
    confidence, correct = generator.random(500), generator.random(500) < 0.7
    total = 0.0
    for low in range(10):
        inside = (confidence >= low / 10) & (confidence < (low + 1) / 10)
        total += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    assert calibration_error(confidence, correct, bins=10) == pytest.approx(total)
    assert calibration_error(np.ones(4), np.ones(4, dtype=bool)) == 0.0


def test_a_calibrated_classifier_has_no_ece_and_a_large_mixed_one():
    """The paper's values of 0.2 to 0.4 stand beside good Brier scores: no calibration error would."""
    generator = np.random.default_rng(0)
    positive = generator.beta(0.7, 0.7, 20_000)
    labels = (generator.random(20_000) < positive).astype(int).tolist()
    found = classifier_metrics(np.c_[1 - positive, positive], labels)
    assert found["ece"] < 0.02
    assert found["ece_mixed"] > 0.25


def test_more_classes_leave_out_what_is_of_two():
    generator = np.random.default_rng(0)
    found = classifier_metrics(generator.dirichlet(np.ones(3), 50), generator.integers(3, size=50).tolist())
    assert [name for name, value in found.items() if value is None] == ["roc_auc", "pr_auc", "brier", "ece_mixed"]


def test_differences_are_paired():
    generator = np.random.default_rng(0)
    first = [generator.random(400) < 0.7 for _ in range(3)]
    better = [run | (generator.random(400) < 0.2) for run in first]
    found = compare_classifiers(first, better)
    assert found["accuracy"] == pytest.approx(np.mean(better) - np.mean(first))
    assert 0 < found["interval"][0] < found["accuracy"] < found["interval"][1]
    assert max(found["p"]) < 0.01
    same = compare_classifiers(first, first)
    assert same["interval"] == (0.0, 0.0) and same["p"] == [1.0] * 3


def test_refusals():
    with pytest.raises(kf.KernelformerError, match="0 to 1"):
        classifier_metrics(np.full((2, 2), 0.5), [0, 2])
    with pytest.raises(kf.KernelformerError, match=r"\[n, C\]"):
        classifier_metrics(np.full((2, 2), 0.5), [0])
    with pytest.raises(kf.KernelformerError, match="paired"):
        compare_classifiers([np.ones(3, dtype=bool)], [np.ones(4, dtype=bool)])
