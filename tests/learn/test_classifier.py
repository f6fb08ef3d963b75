"""A citizen of scikit-learn, which finds a frequency that random features miss."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelformer as kf
from kernelformer.learn.classifier import KernelClassifier


@parametrize_with_checks([KernelClassifier(num_particles=32, max_steps=5)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def planted(seed, rows=300):
    """The sign of one wave along one of eight columns."""
    x = np.random.default_rng(seed).normal(size=(rows, 8))
    return x, (np.sin(3.0 * x[:, 0]) > 0).astype(int)


def test_learned_frequencies_beat_random_ones():
    x, y = planted(0)
    unseen, wanted = planted(1)
    learned, fixed = (
        KernelClassifier(num_particles=64, max_steps=steps).fit(x, y).score(unseen, wanted) for steps in (100, 0)
    )
    assert learned > fixed + 0.1
    assert learned > 0.8


def test_the_name_of_the_package_is_the_class():
    assert kf.KernelClassifier is KernelClassifier


def test_the_unit_of_the_data_does_not_matter():
    x, y = planted(0, 60)
    model = KernelClassifier(num_particles=16, num_features=8, max_steps=5)
    one = model.fit(x, y).predict_proba(x)
    assert model.particles_.shape == (8, 8)
    np.testing.assert_allclose(model.fit(1000.0 * x, y).predict_proba(1000.0 * x), one, rtol=1e-6)


def test_repeats_by_its_random_state():
    x, y = planted(0, 60)
    first, again, other = (
        KernelClassifier(num_particles=16, max_steps=3, random_state=seed).fit(x, y).particles_ for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_refusals():
    x, y = planted(0, 20)
    with pytest.raises(kf.DataError, match="two classes"):
        KernelClassifier().fit(x, np.zeros(20))
    with pytest.raises(kf.KernelformerError, match="gamma"):
        KernelClassifier(gamma="auto").fit(x, y)
    with pytest.raises(kf.KernelformerError, match="num_features"):
        KernelClassifier(8, 9).fit(x, y)
