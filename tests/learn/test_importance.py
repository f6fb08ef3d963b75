"""Weights are the maximum on the ball; sampled features win where random ones must miss."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelformer as kf
from kernelformer.learn.importance import ImportanceFeatures, importance_weights


@parametrize_with_checks([ImportanceFeatures(n_components=8, n_candidates=50)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("radius", [0.0, 1e-3, 0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_the_maximum_on_the_ball(radius, seed):
    """Against a general solver of the same small problem."""
    count = 9
    v = np.random.default_rng(seed).exponential(size=count)
    weights = importance_weights(v, radius)
    assert weights.min() >= 0.0
    assert weights.sum() == pytest.approx(1.0)
    assert np.square(weights - 1 / count).sum() == pytest.approx(radius, abs=1e-9)
    constraints = [
        {"type": "eq", "fun": lambda q: q.sum() - 1.0},
        {"type": "ineq", "fun": lambda q: radius - np.square(q - 1 / count).sum()},
    ]
    start = np.full(count, 1 / count)
    if radius > 0:
        found = minimize(lambda q: -q @ v, start, bounds=[(0, 1)] * count, constraints=constraints, method="SLSQP")
        assert weights @ v == pytest.approx(-found.fun, abs=1e-5)


def test_a_large_ball_gives_all_to_the_best():
    assert importance_weights([1.0, 3.0, 2.0], 0.9).tolist() == [0.0, 1.0, 0.0]
    assert importance_weights([3.0, 3.0, 2.0], 0.9).tolist() == [0.5, 0.5, 0.0]
    assert importance_weights([2.0, 2.0], 0.3).tolist() == [0.5, 0.5]


def test_drawn_features_follow_the_weights():
    """With more weight than fits, draws are systematic; with fewer, all are kept, and the kernel's diagonal is 1."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = x[:, 0] > 0
    drawn = ImportanceFeatures(n_components=20, n_candidates=500).fit(x, y)
    kept = ImportanceFeatures(n_components=500, n_candidates=500).fit(x, y)
    assert drawn.transform(x).shape == (40, 20)
    assert kept.transform(x).shape[1] > 20
    for features in (drawn, kept):
        assert np.square(features.scales_).sum() == pytest.approx(2.0)
    weights = np.square(kept.scales_) / 2
    counts = [(drawn.phases_ == phase).sum() for phase in kept.phases_]
    assert np.abs(counts - 20 * weights).max() < 1.0


def score(radius, make, seeds=3):
    """Accuracy on 2,000 unseen rows of 200 learned on, mean over seeds; radius 0 is without labels."""
    found = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        (x, y), unseen = make(random, 200), make(random, 2000)
        features = ImportanceFeatures(n_components=20, radius=radius, n_candidates=4000, random_state=seed)
        found.append(make_pipeline(features, LogisticRegression(C=100.0)).fit(x, y).score(*unseen))
    return np.mean(found)


def shell(random, rows):
    """The planted case of the paper: on which side of a sphere x is, in 8 dimensions."""
    x = random.normal(size=(rows, 8))
    return x, np.linalg.norm(x, axis=1) > 8**0.5


def wave(random, rows):
    """The sign of one wave along one of 4 columns."""
    x = random.normal(size=(rows, 4))
    return x, np.sin(2.5 * x[:, 0]) > 0


@pytest.mark.parametrize("make", [shell, wave])
def test_sampled_features_beat_random_ones(make):
    sampled, random = score(0.02, make), score(0.0, make)
    assert sampled > random + 0.1


def test_refusals():
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(kf.DataError, match="two classes"):
        ImportanceFeatures().fit(x, np.zeros(20))
    with pytest.raises(kf.KernelformerError, match="radius"):
        ImportanceFeatures(radius=-1.0).fit(x, x[:, 0] > 0)
