"""Random Fourier features sampled by how well they align with labels. Needs scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelformer.errors import KernelformerError
from kernelformer.learn.rows import labelled_rows

__all__ = ["ImportanceFeatures", "importance_weights"]


def importance_weights(alignments: Any, radius: float) -> Any:
    """The distribution q over candidates that maximises Σ_j q_j v_j within ‖q - 1/n‖² <= radius.

    The ball is one of χ² divergence, n ‖q - 1/n‖². By the conditions of Karush, Kuhn and Tucker q is proportional to
    max(v - τ, 0), and the one unknown, τ, is found by bisection; where every weight is positive, in closed form.

    Args:
        alignments: v, [n].
        radius: of the ball, 0 or more. At 0 the weights are equal; at 1 - 1/n or more the largest v takes all (those
            that tie share it).

    Returns:
        [n], not negative, of sum 1.

    References:
        Sinha & Duchi 2016, Learning kernels with random features, NIPS.
    """
    below = np.max(alignments) - np.asarray(alignments, dtype=np.float64)
    count, target = len(below), radius + 1.0 / len(below)

    def weights(height: float) -> Any:
        kept = np.maximum(height - below, 0.0)
        return kept / kept.sum()

    highest = below == 0.0
    if target >= 1.0 / highest.sum():
        return highest / highest.sum()
    deviation = np.square(below - below.mean()).sum()
    if np.square(weights(below.max())).sum() >= target:
        return 1.0 / count - np.sqrt(radius / deviation) * (below - below.mean())
    # Between the first candidate below the highest, where only those have weight, and the lowest one.
    second = below[~highest].min()
    return weights(brentq(lambda height: np.square(weights(height)).sum() - target, second, below.max()))


class ImportanceFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """√2 cos(w·x + b), w and b drawn from candidates by weights that ``importance_weights`` gives them.

    Candidates are drawn from N(0, 2 gamma) and the uniform phases, where their mean kernel is exp(-gamma ‖x - x'‖²);
    the alignment of one is ‖Σ_i t_i cos(w·x_i + b)‖², t_i the unit vector of row i's class less 1/classes: with two
    classes it weighs as (Σ_i y_i cos(w·x_i + b))² of labels -1 and 1. If no more than ``n_components`` candidates have
    weight, all of them are kept, each scaled by the root of it; else as many are drawn.

    Args:
        gamma: positive.
        n_components: D, how many features at most.
        n_candidates: how many are drawn first.
        radius: of the ball that weights q may lie in; 1/Σq², as many as count, is at least 1/(radius + 1/n_candidates).
        random_state: int, ``RandomState``, or None for a draw that differs from call to call.

    Attributes:
        frequencies_: w, [columns of X, features].
        phases_: b, [features].
        scales_: what each cosine is multiplied by, [features]; their squares sum to 2.

    References:
        Sinha & Duchi 2016, Learning kernels with random features, NIPS.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(-3, 3, 100)[:, None]
        >>> features = ImportanceFeatures(n_components=8, radius=0.1).fit(X, np.sin(3 * X[:, 0]) > 0)
        >>> features.transform(X).shape
        (100, 8)
        >>> bool(abs(abs(features.frequencies_).mean() - 3) < 0.5)
        True
    """

    def __init__(
        self,
        gamma: float = 0.5,
        n_components: int = 200,
        *,
        n_candidates: int = 10_000,
        radius: float = 0.005,
        random_state: Any = 0,
    ) -> None:
        self.gamma = gamma
        self.n_components = n_components
        self.n_candidates = n_candidates
        self.radius = radius
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> ImportanceFeatures:  # noqa: N803
        """Draw candidates, weigh them, keep or draw ``n_components``.

        Args:
            X: [rows, columns], finite numbers, dense.
            y: a label a row, of at least two classes.

        Raises:
            DataError: one class only.
            KernelformerError: an argument out of its range.
        """
        X, classes, indices = labelled_rows(self, X, y)  # noqa: N806
        if not (self.gamma > 0 and self.radius >= 0 and self.n_components >= 1 and self.n_candidates >= 2):
            raise KernelformerError(
                "gamma must be positive, radius 0 or more, n_components 1 or more and n_candidates 2 or more, got "
                f"{self.gamma}, {self.radius}, {self.n_components} and {self.n_candidates}"
            )
        random = check_random_state(self.random_state)
        frequencies = np.sqrt(2.0 * self.gamma) * random.normal(size=(X.shape[1], self.n_candidates))
        phases = random.uniform(0.0, 2.0 * np.pi, self.n_candidates)
        targets = np.eye(len(classes))[indices]
        sums = (targets - 1.0 / len(classes)).T @ np.cos(X @ frequencies + phases)
        chosen, squares = _choose(importance_weights(np.square(sums).sum(0), self.radius), self.n_components, random)
        self.frequencies_, self.phases_ = frequencies[:, chosen], phases[chosen]
        self.scales_ = np.sqrt(2.0 * squares)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The features, [rows, features]; their inner products are the learned kernel."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)  # noqa: N806
        return self.scales_ * np.cos(X @ self.frequencies_ + self.phases_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _choose(weights: Any, count: int, random: Any) -> tuple[Any, Any]:
    """Indices of the features to keep, and their squared scales, of sum 1."""
    kept = np.flatnonzero(weights)
    if len(kept) <= count:
        return kept, weights[kept]
    # Systematic: one uniform number for all draws, so that a weight of k/count is drawn k times.
    places = (np.arange(count) + random.uniform()) / count
    drawn = np.searchsorted(np.cumsum(weights) / weights.sum(), places, side="right").clip(max=len(weights) - 1)
    return drawn, np.full(count, 1.0 / count)
