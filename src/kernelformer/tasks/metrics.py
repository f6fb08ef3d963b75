"""What a classifier's probabilities are worth, and whether two classifiers differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    log_loss,
    matthews_corrcoef,
    roc_auc_score,
)

from kernelformer.errors import KernelformerError
from kernelformer.tasks.intervals import bootstrap_interval, mcnemar_p

__all__ = ["ClassifierMetrics", "Difference", "calibration_error", "classifier_metrics", "compare_classifiers"]

_BINS: Final = 15


class ClassifierMetrics(TypedDict):
    """Of n texts. Areas, Brier score and the mixed calibration error are of two classes, the second being positive.

    With more classes ``f1_macro`` and the rest stay, and those four are None. ``ece`` is the standard expected
    calibration error (Guo et al. 2017, arXiv 1706.04599): confidence against correctness. ``ece_mixed`` bins the
    probability of the positive class and compares it with the correctness of the prediction; it is not a calibration
    error, and stands here for comparison with Badiei Khuzani et al. 2026, whose values it reproduces.
    """

    texts: int
    accuracy: float
    f1_macro: float
    f1_weighted: float
    mcc: float
    balanced_accuracy: float
    log_loss: float
    ece: float
    roc_auc: float | None
    pr_auc: float | None
    brier: float | None
    ece_mixed: float | None


class Difference(TypedDict):
    """``second`` minus ``first`` in accuracy on the same texts, means over runs.

    The 95 % interval is a paired bootstrap over texts, for these runs; ``p`` is an exact McNemar test of each pair of
    runs, in order.
    """

    accuracy: float
    interval: tuple[float, float]
    p: list[float]


def classifier_metrics(probabilities: NDArray[np.float64], labels: Sequence[int]) -> ClassifierMetrics:
    """All metrics of class probabilities [n, C], C >= 2, against class numbers [n]; each by scikit-learn but the ECE.

    Raises:
        KernelformerError: shapes do not fit, or a class number is out of range.
    """
    truth = _checked(probabilities, labels)
    guess = probabilities.argmax(1)
    correct = guess == truth
    classes = list(range(probabilities.shape[1]))
    positive = probabilities[:, 1] if len(classes) == 2 else None
    both = positive is not None and len(set(truth.tolist())) == 2
    return {
        "texts": len(truth),
        "accuracy": float(accuracy_score(truth, guess)),
        "f1_macro": float(f1_score(truth, guess, labels=classes, average="macro", zero_division=0.0)),
        "f1_weighted": float(f1_score(truth, guess, labels=classes, average="weighted", zero_division=0.0)),
        "mcc": float(matthews_corrcoef(truth, guess)),
        "balanced_accuracy": float(balanced_accuracy_score(truth, guess)),
        "log_loss": float(log_loss(truth, probabilities, labels=classes)),
        "ece": calibration_error(probabilities.max(1), correct),
        "roc_auc": float(roc_auc_score(truth, positive)) if both else None,
        "pr_auc": float(average_precision_score(truth, positive)) if both else None,
        "brier": None if positive is None else float(brier_score_loss(truth, positive, pos_label=1)),
        "ece_mixed": None if positive is None else calibration_error(positive, correct),
    }


def calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = _BINS) -> float:
    """Σ_b n_b / n · |mean confidence in bin b - share correct in bin b|, over bins of equal width on [0, 1].

    References:
        Guo et al. 2017, arXiv 1706.04599.
    """
    places = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(places, confidence - correct.astype(np.float64), bins)
    return float(np.abs(gaps).sum() / len(confidence))


def compare_classifiers(
    first: Sequence[NDArray[np.bool_]], second: Sequence[NDArray[np.bool_]], *, seed: int = 0
) -> Difference:
    """The difference in accuracy of two classifiers of which each was run a few times on the same texts.

    Args:
        first, second: which texts each run got right, [n] a run; runs are paired in their order.
        seed: of the bootstrap.

    Raises:
        KernelformerError: runs or texts differ in number.
    """
    sizes = {len(run) for run in (*first, *second)}
    if len(first) != len(second) or not first or len(sizes) != 1:
        raise KernelformerError(
            f"runs must be paired, on the same texts: got {len(first)} and {len(second)} runs, {sorted(sizes)} texts"
        )
    gains = np.mean(np.asarray(second, dtype=np.float64), 0) - np.mean(np.asarray(first, dtype=np.float64), 0)
    return {
        "accuracy": float(gains.mean()),
        "interval": bootstrap_interval(gains, seed),
        "p": [mcnemar_p(one, two) for one, two in zip(first, second, strict=True)],
    }


def _checked(probabilities: NDArray[np.float64], labels: Sequence[int]) -> NDArray[np.int64]:
    truth = np.asarray(labels, dtype=np.int64)
    if probabilities.ndim != 2 or probabilities.shape[1] < 2 or len(probabilities) != len(truth) or not len(truth):
        raise KernelformerError(
            f"probabilities must be [n, C], C at least 2, and labels [n], got {probabilities.shape} and {truth.shape}"
        )
    if truth.min() < 0 or truth.max() >= probabilities.shape[1]:
        raise KernelformerError(f"labels must be 0 to {probabilities.shape[1] - 1}, got {truth.min()} to {truth.max()}")
    return truth
