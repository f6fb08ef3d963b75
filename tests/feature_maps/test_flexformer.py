from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import FlexformerN, FlexformerS

MAPS = [FlexformerS, FlexformerN]
PAPER = {"phase": False, "tilt": False}  # the formula as the paper has it
SQUARE = torch.diag(torch.tensor([4.0, 1.0, 0.5, 0.1, 0.0]))


@pytest.mark.parametrize("cls", MAPS)
def test_options_start_where_the_plain_map_starts(cls, kernel, pair) -> None:
    plain = kernel(cls(5, 2, 12, **PAPER), *pair)
    for options in ({"tilt": True}, {"shared": False}):
        torch.testing.assert_close(kernel(cls(5, 2, 12, **{**PAPER, **options}), *pair), plain)
    whole = kernel(cls(5, 2, 12), *pair)
    torch.testing.assert_close(kernel(cls(5, 2, 12, shared=False), *pair), whole)


@pytest.mark.parametrize("cls", MAPS)
def test_parameters(cls) -> None:
    def names(**options: bool) -> set[str]:
        return {name for name, _ in cls(5, 2, 12, **{**PAPER, **options}).named_parameters()} - {"tau"}

    assert names() == {"omega"}
    assert names(phase=True) == {"omega", "bias"}
    assert names(tilt=True) == {"omega", "tilt"}
    assert names(shared=False) == {"omega", "omega_q"}
    assert names(phase=True, shared=False) == {"omega", "bias", "omega_q", "bias_q"}


def moved(feature_map: kf.FeatureMap, name: str) -> kf.FeatureMap:
    with torch.no_grad():
        parameter = getattr(feature_map, name)
        parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return feature_map


def test_a_shared_phase_cancels_in_s_and_counts_in_n(kernel, pair) -> None:
    for cls, same in ((FlexformerS, True), (FlexformerN, False)):
        with_phase = kernel(moved(cls(5, 2, 12, phase=True), "bias"), *pair)
        assert torch.allclose(with_phase, kernel(cls(5, 2, 12, phase=True), *pair)) is same


@pytest.mark.parametrize("cls", MAPS)
@pytest.mark.parametrize("name", ["omega_q", "bias_q"])
def test_queries_have_what_is_theirs(cls, name: str) -> None:
    x = torch.randn(1, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    plain, other = cls(5, 2, 12, phase=True), moved(cls(5, 2, 12, phase=True, shared=False), name)
    torch.testing.assert_close(other.phi(x).values, plain.phi(x).values)
    assert not torch.allclose(other.phi_q(x).values, plain.phi_q(x).values)


@pytest.mark.parametrize("cls", MAPS)
@pytest.mark.parametrize("shared", [True, False])
def test_angles_are_scaled_to_the_data(cls, shared: bool, seen) -> None:
    flexformer = cls(5, 2, 12, shared=shared, angle_scale=0.5)
    flexformer.start_from(seen(2, SQUARE, 0.01 * SQUARE))
    moments = {"omega": 0.505 * SQUARE} if shared else {"omega": 0.01 * SQUARE, "omega_q": SQUARE}
    for name, square in moments.items():
        omega = getattr(flexformer, name).detach()
        torch.testing.assert_close((omega * (square @ omega)).sum(1).mean(-1), torch.full((2,), 0.25))


def test_without_angle_scale_the_data_moves_no_frequency(seen) -> None:
    flexformer = FlexformerS(5, 1, 12)
    flexformer.start_from(seen(1, SQUARE))
    assert torch.equal(flexformer.omega, FlexformerS(5, 1, 12).omega)
    with pytest.raises(kf.KernelformerError, match="angle_scale must be positive"):
        FlexformerS(5, 1, angle_scale=0.0)


@pytest.mark.parametrize("cls", MAPS)
def test_tilt_is_a_weight_of_each_key(cls, kernel, pair) -> None:
    x, y = pair
    tilted = moved(cls(5, 2, 12, tilt=True), "tilt")
    tilt = tilted.tilt.detach().double()
    expected = kernel(cls(5, 2, 12), x, y) * torch.exp(x @ tilt) * torch.exp(y @ tilt).mT
    torch.testing.assert_close(kernel(tilted, x, y), expected)


def test_phases_start_opposite_and_spread() -> None:
    first, second = FlexformerN(5, 40, 12, phase=True, phase_spread=1.5).bias.detach().unflatten(-1, (2, 6)).unbind(-2)
    assert torch.equal(first, -second)
    assert first.abs().max() <= 1.5
    assert first.std().item() == pytest.approx(1.5 / 3**0.5, rel=0.2)
    assert torch.equal(FlexformerN(5, 2, 12, phase_spread=1.5).omega, FlexformerN(5, 2, 12, phase=False).omega)
    for options in ({"phase": False, "phase_spread": 1.0}, {"phase_spread": 4.0}):
        with pytest.raises(kf.KernelformerError, match="phase_spread"):
            FlexformerN(5, 1, **options)


@pytest.mark.parametrize("cls", MAPS)
def test_all_options_pass_the_contract(cls) -> None:
    kf.testing.check_feature_map(cls(8, 2, 16, phase=True, tilt=True, shared=False))
