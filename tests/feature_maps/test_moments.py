from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps.moments import optimal_curvature, optimal_proposal, second_moments, symmetric_power
from kernelformer.features import Moments


def spd(size: int, largest: float) -> torch.Tensor:
    q = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(0)).double())[0]
    return ((q * torch.linspace(0.01, largest, size).double()) @ q.T)[None]


def test_the_proposal_is_the_papers_for_equal_moments() -> None:
    moments, eye = spd(5, 0.4), torch.eye(5).double()
    expected = (eye + 2 * moments) @ torch.linalg.inv(eye - 2 * moments)
    torch.testing.assert_close(optimal_proposal(moments, moments, None), expected)


def test_the_proposal_minimises_the_averaged_second_moment() -> None:
    # Along one axis, over q and k: E w(ω)² p(ω) … = ∫ N(ω; 0, 1)² / N(ω; 0, s) · exp(2 g ω²) dω up to a factor.
    queries, keys = torch.tensor([[[0.1]]]).double(), torch.tensor([[[0.35]]]).double()
    damped = sum(m.item() / (1 + 2 * m.item()) for m in (queries, keys))
    best = optimal_proposal(queries, keys, None).item()
    omega = torch.linspace(-60, 60, 200001).double()

    def second_moment(s: float) -> float:
        return torch.trapezoid(torch.exp(-(omega**2) * (1 - 4 * damped / 2 - 0.5 / s)) * s**0.5, omega).item()

    assert second_moment(best) < min(second_moment(0.9 * best), second_moment(1.1 * best))


def test_beyond_a_half_the_proposal_raises_or_is_capped() -> None:
    moments = spd(5, 0.6)
    with pytest.raises(kf.KernelformerError, match=r"eigenvalues below 0\.5"):
        optimal_proposal(moments, moments, None)
    assert torch.linalg.eigvalsh(optimal_proposal(moments, moments, 0.4)).max().item() == pytest.approx(1.8 / 0.2)


@pytest.mark.parametrize("spread", [1e-3, 0.1, 1.0, 50.0])
def test_the_curvature_minimises_the_mean_logarithm_of_the_variance(spread: float) -> None:
    def log_variance(a: float) -> float:
        t = torch.tensor(a).double()
        return (torch.log1p(-4 * t) - 0.5 * torch.log1p(-8 * t) + 2 * spread * (1 - 4 * t) / (1 - 8 * t)).item()

    best = optimal_curvature(torch.tensor(spread).double()).item()
    assert best < 0
    assert log_variance(best) < min(log_variance(0.98 * best), log_variance(1.02 * best))
    assert optimal_curvature(torch.zeros(()).double()).item() == 0.0


def test_powers() -> None:
    matrix = spd(5, 2.0)
    torch.testing.assert_close(symmetric_power(matrix, 0.5) @ symmetric_power(matrix, 0.5), matrix)
    torch.testing.assert_close(symmetric_power(matrix, -1.0), torch.linalg.inv(matrix))
    with pytest.raises(kf.KernelformerError, match="invertible"):
        symmetric_power(torch.diag(torch.tensor([1.0, 0.0])).double()[None], -0.5)


def test_keys_are_centred_and_bad_moments_refused() -> None:
    mean, square = torch.tensor([[1.0, 0.0]]), torch.diag(torch.tensor([1.5, 0.5]))[None]
    _, keys = second_moments(Moments(mean, mean, square, square), 1, 2)
    torch.testing.assert_close(keys, torch.diag(torch.tensor([0.5, 0.5])).double()[None])
    for bad in (torch.tensor([[[1.0, 0.5], [0.0, 1.0]]]), -square, torch.nan * square):
        with pytest.raises(kf.KernelformerError, match="second moments must"):
            second_moments(Moments(mean, mean, bad, square), 1, 2)
    with pytest.raises(kf.ShapeError, match="second moments must be"):
        second_moments(Moments(mean, mean, square[0], square), 1, 2)
