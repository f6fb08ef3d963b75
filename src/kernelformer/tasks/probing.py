"""A linear probe on frozen embeddings: what they still say about a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.intervals import bootstrap_interval, mcnemar_p, wilson_interval

__all__ = ["Probe", "ProbeDifference", "compare_probes", "probe"]

_STRENGTH: Final = 0.003
"""Inverse L2 penalty. Flat optimum: all-MiniLM-L6-v2 on Rotten Tomatoes, 5-fold over training films, is right
in 75.9 % there and in 75.7 to 76.0 % from 0.0003 to 1."""


@dataclass(frozen=True)
class Probe:
    """Accuracy on test texts with its 95 % Wilson interval; ``correct`` [n] says which were right.

    ``majority`` is the accuracy of always answering the commonest training label.
    """

    accuracy: float
    accuracy_ci: tuple[float, float]
    majority: float
    correct: NDArray[np.bool_]


class ProbeDifference(TypedDict):
    """Student against teacher on the same test texts.

    ``difference`` is student minus teacher; its interval is a paired bootstrap over texts, ``p`` an
    exact McNemar test.
    """

    teacher: float
    teacher_ci: tuple[float, float]
    student: float
    student_ci: tuple[float, float]
    majority: float
    difference: float
    difference_ci: tuple[float, float]
    p: float


def probe(train: Tensor, train_labels: Sequence[str], test: Tensor, test_labels: Sequence[str]) -> Probe:
    """Logistic regression (L2, on standardised embeddings) fitted on ``train`` [n, D], scored on ``test``.

    Nothing is tuned on the test texts, and nothing is drawn: the same input gives the same answer.

    Raises:
        KernelformerError: numbers of embeddings and labels differ.
        DataError: fewer than two labels to learn.
    """
    for name, embeddings, labels in (("train", train, train_labels), ("test", test, test_labels)):
        if len(embeddings) != len(labels) or not len(labels):
            raise KernelformerError(f"{name}: each embedding needs a label, got {len(labels)} for {len(embeddings)}")
    counts = Counter(train_labels)
    if len(counts) < 2:
        raise DataError(f"a probe needs at least two labels, the training texts have: {', '.join(counts)}")
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH, max_iter=1000))
    classifier.fit(train.numpy(), np.asarray(train_labels))
    expected = np.asarray(test_labels)
    correct = np.asarray(classifier.predict(test.numpy()) == expected, dtype=np.bool_)
    hits = int(correct.sum())
    return Probe(
        accuracy=hits / len(correct),
        accuracy_ci=wilson_interval(hits, len(correct)),
        majority=float((expected == counts.most_common(1)[0][0]).mean()),
        correct=correct,
    )


def compare_probes(teacher: Probe, student: Probe, *, seed: int = 0) -> ProbeDifference:
    """The difference of two probes scored on the same test texts.

    Raises:
        KernelformerError: the numbers of test texts differ.
    """
    if len(teacher.correct) != len(student.correct):
        raise KernelformerError(
            f"the probes were scored on {len(teacher.correct)} and {len(student.correct)} texts; they must be the same"
        )
    paired = student.correct.astype(np.float64) - teacher.correct.astype(np.float64)
    return {
        "teacher": teacher.accuracy,
        "teacher_ci": teacher.accuracy_ci,
        "student": student.accuracy,
        "student_ci": student.accuracy_ci,
        "majority": teacher.majority,
        "difference": float(paired.mean()),
        "difference_ci": bootstrap_interval(paired, seed),
        "p": mcnemar_p(teacher.correct, student.correct),
    }
