"""The law of the synthetic task is the one that is written down."""

from __future__ import annotations

import numpy as np
import pytest

import kernelformer as kf
from kernelformer.tasks.synthetic import NOISE_LEVELS, draw_synthetic


def logits(x):
    return 1.5 * np.sin(np.pi * x[:, 0]) + 0.8 * x[:, 1] ** 2 - x[:, 2] * x[:, 3] + 0.5 * np.sin(3.0 * x[:, 4])


def test_labels_follow_the_logistic_law():
    """In ten bins of the logit the share of ones is the mean probability, within 4.5 standard errors."""
    drawn = draw_synthetic(40_000, 0.0, 0)
    likely = 1.0 / (1.0 + np.exp(-logits(drawn.inputs)))
    order = np.argsort(likely).reshape(10, -1)
    errors = drawn.labels[order].mean(1) - likely[order].mean(1)
    assert (np.abs(errors) < 4.5 * np.sqrt((likely * (1 - likely))[order].mean(1) / 4000)).all()
    assert np.array_equal(drawn.best, (logits(drawn.inputs) > 0).astype(int))


def test_the_more_probable_label_is_the_best_guess_until_noise_hides_it():
    shares = [(drawn.best == drawn.labels).mean() for drawn in (draw_synthetic(20_000, s, 1) for s in (0.0, 3.0, 1e5))]
    assert shares[0] > 0.75 > shares[1] > 0.6 > 0.52 > shares[2]


def test_columns_beyond_the_fifth_weigh_the_same_for_all_rows():
    """Their weights are drawn in the call: the same seed gives the same, and they can be fitted."""
    drawn = draw_synthetic(50_000, 0.0, 3, columns=7)
    assert np.array_equal(drawn.inputs, draw_synthetic(50_000, 0.0, 3, columns=7).inputs)
    slopes = [np.cov(drawn.inputs[:, column], drawn.labels)[0, 1] for column in (5, 6)]
    halves = [[np.cov(half[:, c], lab)[0, 1] for c in (5, 6)] for half, lab in halved(drawn)]
    assert np.abs(slopes).max() > 0.02
    np.testing.assert_allclose(*halves, atol=0.02)


def halved(drawn):
    return [(drawn.inputs[part], drawn.labels[part]) for part in (slice(None, 25_000), slice(25_000, None))]


def test_refusals():
    assert len(NOISE_LEVELS) == 10
    with pytest.raises(kf.DataError, match="5 columns"):
        draw_synthetic(10, 0.0, 0, columns=4)
    with pytest.raises(kf.DataError, match="noise"):
        draw_synthetic(10, -1.0, 0)
