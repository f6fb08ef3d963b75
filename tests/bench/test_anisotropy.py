"""The study of anisotropy: its formulas against quadrature, and what it must show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelformer.bench.anisotropy import anisotropy_markdown, measure_anisotropy, second_moments
from kernelformer.bench.rows import Rows


@pytest.mark.parametrize("eigenvalue", [0.05, 0.1, 0.15])
def test_second_moments_are_their_integrals(eigenvalue: float) -> None:
    variance = (1 + 2 * eigenvalue) / (1 - 2 * eigenvalue)
    omega = np.linspace(-40, 40, 400_001)
    # The mean over q and k of the squared estimate at omega is exp(growth · omega²) / (1 + 2 λ).
    growth = 4 * eigenvalue / (1 + 2 * eigenvalue)
    step = (omega[1] - omega[0]) / math.sqrt(2 * math.pi) / (1 + 2 * eigenvalue)
    isotropic = np.exp((growth - 0.5) * omega**2).sum() * step
    weighted = np.exp((growth - 1 + 0.5 / variance) * omega**2).sum() * step * math.sqrt(variance)
    assert second_moments(eigenvalue) == pytest.approx((isotropic, weighted), rel=1e-6)


def test_second_moments_diverge_where_they_should() -> None:
    assert [math.isinf(value) for value in second_moments(0.166)] == [False, False]
    assert [math.isinf(value) for value in second_moments(0.167)] == [True, False]
    assert [math.isinf(value) for value in second_moments(0.499)] == [True, False]
    assert [math.isinf(value) for value in second_moments(0.5)] == [True, True]


def test_sampling_that_knows_the_covariance_wins_on_anisotropic_data(kept: Rows) -> None:
    rows = measure_anisotropy(3, kept, squared_norms=(1.0,), conditions=(1, 4096), widths=(128,))
    error = {(row["kernel"], row["condition"]): row["error"] for row in rows}
    assert error["softmax_sampling, optimal", 4096] < 0.75 * error["favor, orthogonal", 4096]
    assert error["softmax_sampling, optimal", 4096] < 1.1 * error["softmax_sampling, optimal", 1]
    assert error["favor, independent", 4096] > 1.2 * error["favor, independent", 1]
    assert "condition" in anisotropy_markdown(rows, 128)
