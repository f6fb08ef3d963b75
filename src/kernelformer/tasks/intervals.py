"""Confidence intervals of 95 %."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from scipy.stats import t as student_t

__all__ = ["bootstrap_interval", "mcnemar_p", "mean_interval", "wilson_interval"]

_RESAMPLES: Final = 2000


def bootstrap_interval(values: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values`` [n] (Efron 1979); stays in their range."""
    generator = np.random.default_rng(seed)
    # One resample at a time: all at once would hold 2,000 n numbers.
    means = [values[generator.integers(len(values), size=len(values))].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def wilson_interval(hits: int, trials: int) -> tuple[float, float]:
    """Interval of a share (Wilson 1927), sound at 0 and 1, too."""
    interval = binomtest(hits, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar_p(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """Exact two-sided p of "both are right equally often", from the cases where one alone is (McNemar 1947)."""
    only_first, only_second = int((first & ~second).sum()), int((~first & second).sum())
    if only_first + only_second == 0:
        return 1.0
    return float(binomtest(only_first, only_first + only_second, 0.5).pvalue)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval of the mean of two or more values, such as one a seed, by Student's t."""
    found = np.asarray(values, dtype=np.float64)
    half = float(student_t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    return float(found.mean()) - half, float(found.mean()) + half
