"""Intervals cover at their rate and meet published values."""

from __future__ import annotations

import numpy as np
import pytest

from kernelformer.tasks.intervals import bootstrap_interval, mcnemar_p, mean_interval, wilson_interval


def test_bootstrap_is_the_normal_interval_for_many_values() -> None:
    values = np.random.default_rng(0).normal(3, 2, 4000)
    low, high = bootstrap_interval(values, 0)
    error = values.std() / np.sqrt(4000)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)
    assert bootstrap_interval(values, 0) == (low, high)
    assert bootstrap_interval(values, 1) != (low, high)


def test_bootstrap_stays_in_the_range_of_the_values() -> None:
    low, high = bootstrap_interval(np.array([1.0, 1.0, 1.0, 0.2]), 0)
    assert 0.2 <= low < high <= 1.0


def test_wilson_meets_newcombe_1998_table_1() -> None:
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_mcnemar_counts_only_where_one_alone_is_right() -> None:
    first = np.array([True] * 50 + [True] * 8 + [False] * 2)
    second = np.array([True] * 50 + [False] * 8 + [True] * 2)
    # Two-sided binomial of 2 in 10.
    assert mcnemar_p(first, second) == pytest.approx(2 * (1 + 10 + 45) / 1024)


def test_the_mean_of_few_values_is_student_s() -> None:
    """1, 2, 3: the mean 2, its error 1/√3, t at 2 degrees of freedom 4.3027."""
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    samples = np.random.default_rng(0).normal(1.0, 2.0, (2000, 5))
    held = [low <= 1.0 <= high for low, high in map(mean_interval, samples)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)
