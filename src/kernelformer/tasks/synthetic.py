"""Two classes divided by a wave, a square, a product and a second wave, under noise of any strength."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kernelformer.errors import DataError

__all__ = ["NOISE_LEVELS", "Synthetic", "draw_synthetic"]

NOISE_LEVELS = tuple(float(level) for level in np.logspace(-5, 5, 10))
"""σ of the paper's figure."""


class Synthetic(NamedTuple):
    """Inputs [n, columns], labels 0 or 1 [n], and best [n], the more probable label of each row."""

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    best: NDArray[np.int64]


def draw_synthetic(rows: int, noise: float, seed: int, columns: int = 5) -> Synthetic:
    """Rows of x ~ N(0, I), labels 1 with probability sigmoid(l(x) + ξ), ξ ~ N(0, noise²) anew for each row.

    l(x) = 1.5 sin(π x₁) + 0.8 x₂² - x₃ x₄ + 0.5 sin(3 x₅) + w·x₆₊, w ~ N(0, 0.3²). About 62 % of labels are 1 at low
    noise. Since ξ is symmetric the more probable label is that of the sign of l, at any noise.

    Args:
        rows: n. Rows to learn from and rows to judge by must come from one call, because w is drawn in it.
        noise: σ, 0 or more.
        seed: of all draws.
        columns: 5 or more.

    Raises:
        DataError: fewer than 5 columns, or a negative noise.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, synthetic experiment.
    """
    if columns < 5 or not noise >= 0.0:
        raise DataError(f"the synthetic task has at least 5 columns and noise of 0 or more, got {columns} and {noise}")
    random = np.random.default_rng(seed)
    weights = 0.3 * random.normal(size=columns - 5)
    x = random.normal(size=(rows, columns))
    logits = 1.5 * np.sin(np.pi * x[:, 0]) + 0.8 * x[:, 1] ** 2 - x[:, 2] * x[:, 3] + 0.5 * np.sin(3.0 * x[:, 4])
    logits = logits + x[:, 5:] @ weights
    likely = expit(logits + noise * random.normal(size=rows))
    labels = random.uniform(size=rows) < likely
    return Synthetic(x, labels.astype(np.int64), (logits > 0.0).astype(np.int64))
