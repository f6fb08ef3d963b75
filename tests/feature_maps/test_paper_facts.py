"""What the papers say of their kernels, up to the statistics of random draws; heads are the draws."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import elu

import kernelformer as kf
from kernelformer.feature_maps import Darkformer, Elu, Favor, FlexformerN, FlexformerS, Hedgehog
from kernelformer.features import orthogonal_gaussian

DRAWS, DIM, FEATURES = 4000, 5, 10


def seed(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def darkformer(num_heads: int, num_features: int) -> Darkformer:
    return Darkformer(DIM, num_heads, num_features, generator=seed())


def favor(num_heads: int, num_features: int) -> Favor:
    return Favor(DIM, num_heads, num_features, generator=seed())


def independent_favor(num_heads: int, num_features: int) -> Favor:
    return Favor(DIM, num_heads, num_features, orthogonal=False, generator=seed())


def gaussian_flexformer(num_heads: int, num_features: int) -> FlexformerS:
    return FlexformerS(DIM, num_heads, num_features, frequency_scale=1.0, generator=seed())


ESTIMATES = [darkformer, favor, independent_favor, gaussian_flexformer]


@pytest.mark.parametrize("build", ESTIMATES)
def test_unbiased_for_softmax(build, assert_mean, pair) -> None:
    x, y = pair
    assert_mean(build(DRAWS, FEATURES), x, y, (x @ y.mT).exp())


@pytest.mark.parametrize("build", ESTIMATES)
def test_unbiased_through_attention_scaling(build) -> None:
    """q and k enter unscaled, the target is exp(q·k / sqrt(D)): a factor of sqrt(2) or D^(1/4) would show."""
    q, k = 0.6 * torch.randn(2, 1, 1, 4, DIM, generator=seed(3), dtype=torch.float64)
    feature_map = build(DRAWS, FEATURES)
    (one, log_one, _), (two, log_two, _) = (
        m(t.expand(1, DRAWS, -1, -1)) for m, t in ((feature_map.map_q, q), (feature_map.map_k, k))
    )
    drawn = ((one * two).sum(-1) * (log_one + log_two).exp())[0].detach()
    target = ((q * k).sum(-1) / math.sqrt(DIM)).exp()[0, 0]
    error = drawn.std(0) / math.sqrt(DRAWS)
    assert (error < 0.03 * target).all()
    assert ((drawn.mean(0) - target).abs() < 4 * error).all()


def test_darkformer_is_unbiased_for_its_covariance(assert_mean, pair) -> None:
    x, y = pair
    feature_map = darkformer(DRAWS, FEATURES)
    root = torch.eye(DIM) + 0.3 * torch.randn(DIM, DIM, generator=seed(5))
    with torch.no_grad():
        feature_map.root.copy_(root.expand_as(feature_map.root))
    assert not torch.allclose(root, root.mT, atol=0.1), "Σ = MᵀM differs from M Mᵀ only where M is not symmetric"
    sigma = (root.mT @ root).double()
    assert_mean(feature_map, x, y, (x @ sigma @ y.mT).exp())


@pytest.mark.parametrize("build", ESTIMATES)
def test_error_falls_as_one_over_the_root_of_features(build, kernel, pair) -> None:
    """Slope -1 of the mean squared error, within 4 of its own standard errors."""
    x, y = (t[:1] for t in pair)
    target = (x @ y.mT).exp()
    widths, logs, errors = [10, 40, 160], [], []
    for width in widths:
        squared = (kernel(build(DRAWS, width), x, y) - target).square().flatten()
        logs.append(squared.mean().log().item())
        errors.append((squared.std() / math.sqrt(DRAWS) / squared.mean()).item())
    centred = torch.tensor(widths, dtype=torch.float64).log()
    centred -= centred.mean()
    weight = centred / centred.square().sum()
    slope = (weight * torch.tensor(logs, dtype=torch.float64)).sum().item()
    error = (weight * torch.tensor(errors, dtype=torch.float64)).square().sum().sqrt().item()
    assert error < 0.05
    assert abs(slope + 1.0) < 4 * error


def test_orthogonal_draws_beat_independent_ones(kernel, pair) -> None:
    x, y = (t[:1] for t in pair)
    target = (x @ y.mT).exp()
    one, other = ((kernel(b(DRAWS, DIM), x, y) - target).square().mean() for b in (favor, independent_favor))
    assert one < 0.95 * other


def _first_moment(rotations: torch.Tensor) -> tuple[float, float]:
    """Mean trace in standard errors, and the mean square of one entry: 0 and 1 / D for Haar rotations."""
    trace = rotations.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (trace.mean() / trace.std() * math.sqrt(len(trace))).item(), rotations[:, 0, 0].square().mean().item()


def test_orthogonal_draws_are_haar_rotations() -> None:
    drawn = orthogonal_gaussian(DRAWS, DIM, DIM, seed()).double()
    rotations = drawn / drawn.norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        rotations.mT @ rotations, torch.eye(DIM).double().expand_as(rotations), atol=1e-5, rtol=0
    )
    trace, square = _first_moment(rotations)
    assert abs(trace) < 4
    assert square == pytest.approx(1 / DIM, abs=0.02)


def test_a_bare_qr_is_no_haar_rotation() -> None:
    """Without the signs of diag(R) the law above fails by far: it can fail."""
    gauss = torch.randn(DRAWS, DIM, DIM, generator=seed(), dtype=torch.float64)
    trace, _ = _first_moment(torch.linalg.qr(gauss).Q)
    assert abs(trace) > 40


def test_orthogonal_draws_have_gaussian_norms() -> None:
    squares = orthogonal_gaussian(DRAWS, DIM, 2 * DIM + 1, seed()).double().square().sum(1)
    error = squares.std() / math.sqrt(squares.numel())
    assert abs(squares.mean() - DIM) < 4 * error
    assert squares.var().item() == pytest.approx(2 * DIM, rel=0.1)


def test_flexformer_n_holds_flexformer_s(kernel, pair) -> None:
    """ω1 = ω2 and exp(tau) = 2 sqrt(D)."""
    stationary = FlexformerS(DIM, 3, FEATURES, generator=seed(1))
    general = FlexformerN(DIM, 3, FEATURES, tau=math.log(2 * math.sqrt(DIM)), phase=False, generator=seed(2))
    assert not torch.allclose(kernel(general, *pair), kernel(stationary, *pair))
    with torch.no_grad():
        general.omega.copy_(torch.cat([stationary.omega, stationary.omega], dim=-1))
    torch.testing.assert_close(kernel(general, *pair), kernel(stationary, *pair), rtol=1e-6, atol=1e-7)


def test_flexformer_n_is_the_product_form_of_the_paper(kernel, pair) -> None:
    """[cos a cos b, sin a cos b] / sqrt(n), a and b half the sum and half the difference of the angles."""
    feature_map = FlexformerN(DIM, 2, FEATURES, tau=1.3, phase=False, generator=seed(4))
    with torch.no_grad():
        feature_map.tau.copy_(torch.tensor([1.3, 0.4]))
    omega = feature_map.omega.detach().double()
    first, second = omega[..., : FEATURES // 2], omega[..., FEATURES // 2 :]

    def phi(x: torch.Tensor) -> torch.Tensor:
        unscaled = x * DIM**0.25
        growth = (unscaled.square().sum(-1) / feature_map.tau.detach().double().exp()[:, None]).exp()
        half_sum, half_difference = x @ ((first + second) / 2), x @ ((first - second) / 2)
        both = [half_sum.cos() * half_difference.cos(), half_sum.sin() * half_difference.cos()]
        return growth[..., None] * torch.cat(both, dim=-1) / math.sqrt(FEATURES // 2)

    x, y = pair
    torch.testing.assert_close(kernel(feature_map, x, y), phi(x) @ phi(y).mT)


def test_flexformer_s_is_stationary_after_its_factors(kernel, pair) -> None:
    feature_map = FlexformerS(DIM, 2, FEATURES, generator=seed(6))

    def stationary(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        factors = (-0.5 * (x.square().sum(-1)[:, None] + y.square().sum(-1))).exp()
        return kernel(feature_map, x, y) * factors

    x, y = pair
    torch.testing.assert_close(stationary(x + 0.7, y + 0.7), stationary(x, y))
    assert not torch.allclose(stationary(x + 0.7, y), stationary(x, y))


@pytest.mark.parametrize("cls", [FlexformerS, FlexformerN])
def test_spectral_kernels_are_positive_definite(cls, kernel) -> None:
    """Bochner's and Yaglom's kernels as they are written, from differences of angles, without features."""
    x = 0.7 * torch.randn(12, DIM, generator=seed(8), dtype=torch.float64)
    softmax = {"tau": math.log(2 * math.sqrt(DIM)), "phase": False} if cls is FlexformerN else {}
    feature_map = cls(DIM, 1, 64, generator=seed(9), **softmax)
    sets = feature_map.omega.detach()[0].double().chunk(2 if cls is FlexformerN else 1, dim=-1)
    pairs = [(x @ one)[:, None] - (x @ two)[None] for one in sets for two in sets]
    exact = torch.stack([angles.cos().mean(-1) for angles in pairs]).mean(0)
    growth = (0.5 * x.square().sum(-1)).exp()
    exact = growth[:, None] * exact * growth
    torch.testing.assert_close(kernel(feature_map, x, x)[0], exact, rtol=1e-5, atol=1e-6)
    assert torch.linalg.eigvalsh(exact).min() > -1e-10


@pytest.mark.parametrize("name", sorted(kf.FEATURE_MAPS))
def test_gram_matrices_of_shared_maps(name: str, kernel) -> None:
    """Symmetric in q and k, and positive semidefinite, wherever queries and keys share phi."""
    cls = kf.FEATURE_MAPS[name]
    if cls.phi_at is not kf.FeatureMap.phi_at or "phi_q" in vars(cls):
        pytest.skip("queries and keys have features of their own")
    x = torch.randn(9, DIM, generator=seed(1), dtype=torch.float64)
    try:
        feature_map = cls(DIM, 2, FEATURES, generator=seed())
    except kf.KernelformerError:
        feature_map = cls(DIM, 2, None, generator=seed())
    gram = kernel(feature_map, x, x)
    torch.testing.assert_close(gram, gram.mT)
    assert (torch.linalg.eigvalsh(gram) > -1e-9 * gram.abs().max()).all()


def test_elu_is_elu_plus_one() -> None:
    x = torch.tensor([-300.0, -90.0, -20.0, -0.5, 0.0, 0.5, 3.0, 1e4], dtype=torch.float64)
    values, log_scale, _ = Elu(8, 1).phi(x[None, None, None])
    torch.testing.assert_close((values * log_scale.exp()[..., None]).flatten()[3:], elu(x[3:]) + 1)
    alone = Elu(1, 1).phi(x[:3, None][None, None].float())
    torch.testing.assert_close(alone.log_scale.flatten(), x[:3].float())


@pytest.mark.parametrize("options", [{}, {"orthogonal": False}], ids=["orthogonal", "independent"])
def test_favor_is_its_formula(options: dict[str, bool]) -> None:
    feature_map = Favor(4, 2, 6, generator=seed(2), **options)
    x = torch.randn(1, 2, 3, 4, generator=seed(3), dtype=torch.float64)
    values, log_scale, _ = feature_map.phi(x)
    expected = (x @ feature_map.omega.double() - 0.5 * x.square().sum(-1, keepdim=True)).exp() / math.sqrt(6)
    torch.testing.assert_close(values * log_scale.exp()[..., None], expected)


def test_hedgehog_starts_at_the_identity_of_the_unscaled_input() -> None:
    x = torch.randn(1, 2, 3, 4, generator=seed(3), dtype=torch.float64)
    values, log_scale, _ = Hedgehog(4, 2, 8).phi(x)
    assert log_scale is None
    unscaled = 4**0.25 * x
    torch.testing.assert_close(values, torch.cat([unscaled.softmax(-1), (-unscaled).softmax(-1)], dim=-1))
    columns = Hedgehog(4, 2, 6, generator=seed(1)).omega.detach()
    torch.testing.assert_close(columns.mT @ columns, 2 * torch.eye(3).expand(2, 3, 3), atol=1e-6, rtol=0)
