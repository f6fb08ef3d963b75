"""softmax_sampling, oprf and dense_exponential: the kernel stays softmax, the variance falls."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import DenseExponential, Favor, Oprf, SoftmaxSampling

MAPS = [SoftmaxSampling, Oprf, DenseExponential]
NARROW = torch.diag(torch.tensor([0.4, 0.3, 0.02, 0.01, 0.01]))


@pytest.mark.parametrize("cls", MAPS)
def test_starts_at_favor(cls, kernel, pair) -> None:
    torch.testing.assert_close(kernel(cls(5, 3, 12), *pair), kernel(Favor(5, 3, 12), *pair))


@pytest.mark.parametrize("cls", MAPS)
def test_unbiased_after_start_from(cls, assert_mean, pair, seen) -> None:
    feature_map = cls(5, 3000, 12)
    turned = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(5)))[0]
    feature_map.start_from(seen(3000, turned @ NARROW @ turned.T, 0.5 * NARROW))
    assert_mean(feature_map, *pair, torch.exp(pair[0] @ pair[1].T))


def error(feature_map: kf.FeatureMap, kernel, queries: torch.Tensor, keys: torch.Tensor) -> float:
    """Mean over pairs and draws of the logarithm of the squared relative error's mean."""
    ratio = kernel(feature_map, queries, keys) / torch.exp(queries @ keys.T)
    return (ratio - 1).square().mean(0).log().mean().item()


def draws(square: torch.Tensor, number: int) -> torch.Tensor:
    drawn = torch.randn(40, square.shape[0], generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    return drawn @ torch.linalg.cholesky(square.double()).T


@pytest.mark.parametrize("cls", [Oprf, DenseExponential])
def test_less_error_than_favor_on_data_of_few_directions(cls, kernel, seen) -> None:
    feature_map = cls(5, 800, 16)
    feature_map.start_from(seen(800, NARROW))
    q, k = draws(NARROW, 1), draws(NARROW, 2)
    assert error(feature_map, kernel, q, k) < error(Favor(5, 800, 16), kernel, q, k) - 0.1


def test_sampling_has_the_lower_mean_square_on_data_of_few_directions(kernel, seen) -> None:
    square = torch.diag(torch.tensor([0.25, 0.01, 0.01, 0.01, 0.01]))
    sampling = SoftmaxSampling(5, 800, 16)
    sampling.start_from(seen(800, square))
    q, k = (torch.cat([draws(square, 2 * n + side) for n in range(5)]) for side in (0, 1))
    target = torch.exp(q @ k.T)
    ours, favor = ((kernel(m, q, k) - target).square().mean() for m in (sampling, Favor(5, 800, 16)))
    assert ours < 0.8 * favor


def test_an_axis_each_beats_one_for_all_and_balances_the_two_sides(kernel, seen) -> None:
    long, short = 16.0 * NARROW, NARROW / 16.0
    q, k = draws(long, 1), draws(short, 2)
    errors = []
    for cls in (DenseExponential, Oprf):
        feature_map = cls(5, 800, 16)
        feature_map.start_from(seen(800, long, short))
        errors.append(error(feature_map, kernel, q, k))
    assert errors[0] < errors[1] - 0.5
    dense = DenseExponential(5, 1)
    dense.start_from(seen(1, long, short))
    torch.testing.assert_close(dense.balance, torch.full((1, 1, 5), 256.0**-0.25))


@pytest.mark.parametrize("cls", MAPS)
def test_redraw_keeps_the_proposal(cls, pair, kernel, seen) -> None:
    feature_map = cls(5, 2, 12)
    feature_map.start_from(seen(2, NARROW))
    before = {name: b.clone() for name, b in feature_map.named_buffers()}
    feature_map.redraw(torch.Generator().manual_seed(9))
    changed = {name for name, b in feature_map.named_buffers() if not torch.equal(b, before[name])}
    assert changed == ({"omega", "log_weight"} if cls is SoftmaxSampling else {"omega"})
    feature_map.redraw(torch.Generator().manual_seed(0))
    torch.testing.assert_close(feature_map.omega, before["omega"])
    feature_map.reset_parameters()
    torch.testing.assert_close(kernel(feature_map, *pair), kernel(Favor(5, 2, 12), *pair))


@pytest.mark.parametrize("cls", MAPS)
def test_the_proposal_is_saved(cls, pair, kernel, seen) -> None:
    feature_map = cls(5, 2, 12)
    feature_map.start_from(seen(2, NARROW))
    with torch.device("meta"):
        empty = cls(5, 2, 12)
    loaded = empty.to_empty(device="cpu")
    loaded.load_state_dict(feature_map.state_dict())
    assert torch.equal(kernel(loaded, *pair), kernel(feature_map, *pair))


def test_sampling_beyond_a_half(seen) -> None:
    wide = seen(1, 2.0 * NARROW)
    with pytest.raises(kf.KernelformerError, match="dense_exponential"):
        SoftmaxSampling(5, 1, largest=None).start_from(wide)
    sampling = SoftmaxSampling(5, 1, largest=0.3)
    sampling.start_from(wide)
    assert torch.linalg.eigvalsh(sampling.proposal_root).max().item() == pytest.approx((1.6 / 0.4) ** 0.5)
    with pytest.raises(kf.KernelformerError, match="largest must be None or lie in"):
        SoftmaxSampling(5, 1, largest=0.5)


@pytest.mark.parametrize("cls", [Oprf, DenseExponential])
def test_second_moments_of_any_size(cls, seen) -> None:
    for size in (0.0, 1e-6, 1e6):
        feature_map = cls(5, 1)
        feature_map.start_from(seen(1, size * torch.eye(5)))
        assert (feature_map.curvature <= 0).all()
        kf.testing.check_feature_map(feature_map)
