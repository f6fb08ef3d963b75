"""The probe finds what is there and nothing else; differences are paired."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.probing import Probe, compare_probes, probe


def separable(count: int, seed: int) -> tuple[torch.Tensor, list[str]]:
    x = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return x, ["yes" if value > 0 else "no" for value in x[:, 0].tolist()]


def scored(correct: list[bool]) -> Probe:
    return Probe(sum(correct) / len(correct), (0, 1), 0.5, np.array(correct))


def test_a_linear_label_is_found_and_noise_is_not() -> None:
    train, labels = separable(2000, 0)
    test, expected = separable(500, 1)
    found = probe(train, labels, test, expected)
    assert found.accuracy > 0.95
    assert found.accuracy == found.correct.mean()
    assert found.accuracy_ci[0] < found.accuracy < found.accuracy_ci[1]
    noise = probe(torch.roll(train, 7, 0), labels, test, expected)
    assert abs(noise.accuracy - 0.5) < 0.1


def test_majority_is_that_of_the_commonest_training_label() -> None:
    train, _ = separable(10, 0)
    found = probe(train, ["a"] * 6 + ["b"] * 4, train, ["b"] * 7 + ["a"] * 3)
    assert found.majority == pytest.approx(0.3)


def test_scale_of_the_embedding_does_not_matter() -> None:
    train, labels = separable(300, 0)
    test, expected = separable(100, 1)
    plain, scaled = probe(train, labels, test, expected), probe(1000 * train, labels, 1000 * test, expected)
    assert (plain.correct == scaled.correct).all()


def test_difference_is_paired() -> None:
    teacher, student = scored([True] * 90 + [False] * 10), scored([True] * 80 + [False] * 10 + [True] * 10)
    difference = compare_probes(teacher, student)
    assert difference["difference"] == pytest.approx(0.0)
    assert difference["p"] == 1.0
    same = compare_probes(teacher, teacher)
    assert same["difference_ci"] == (0, 0)
    worse = compare_probes(teacher, scored([True] * 70 + [False] * 30))
    assert worse["difference"] == pytest.approx(-0.2)
    assert worse["difference_ci"][1] < 0
    assert worse["p"] == pytest.approx(2 * 0.5**20)


def test_bad_requests_are_refused() -> None:
    x, labels = separable(10, 0)
    with pytest.raises(KernelformerError, match="test: each embedding needs a label, got 9 for 10"):
        probe(x, labels, x, labels[:9])
    with pytest.raises(DataError, match="at least two labels, the training texts have: a"):
        probe(x, ["a"] * 10, x, labels)
    with pytest.raises(KernelformerError, match="scored on 2 and 1 texts"):
        compare_probes(scored([True, False]), scored([True]))
