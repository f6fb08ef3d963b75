"""Closed forms are those of the definitions and of autograd; batches are unbiased; force blocks do not show."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kernelformer as kf
from kernelformer.learn.energy import (
    FourierAlignment,
    Riesz,
    autograd_drift,
    center,
    class_targets,
    pair_alignment,
    sign_targets,
)

SYSTEMS = (3,)  # as many heads
EXPONENTS = [-1.5, -1.0, 0.0, 1.0, 2.5]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def targets(kind, count=7):
    labels = torch.arange(count) % 3
    found = sign_targets(labels) if kind.startswith("sign") else class_targets(labels, 3)
    return center(found.double()) if kind.endswith("centred") else found.double()


KINDS = ["sign", "sign centred", "class", "class centred"]


@pytest.mark.parametrize("kind", KINDS)
def test_alignment_is_the_mean_over_pairs(kind):
    features, wanted = drawn(*SYSTEMS, 7, 5), targets(kind)
    pairs = list(itertools.permutations(range(7), 2))
    by_hand = sum(wanted[i] @ wanted[j] * (features[:, i] * features[:, j]).sum(-1) for i, j in pairs) / len(pairs)
    torch.testing.assert_close(pair_alignment(features, wanted), by_hand)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
def test_batches_are_unbiased(kind, size):
    """The mean over every batch there is, not over some drawn ones, is the value of the whole set."""
    features, wanted = drawn(*SYSTEMS, 7, 5), targets(kind)
    batches = [list(batch) for batch in itertools.combinations(range(7), size)]
    means = torch.stack([pair_alignment(features[:, batch], wanted[batch]) for batch in batches]).mean(0)
    torch.testing.assert_close(means, pair_alignment(features, wanted))


@pytest.mark.parametrize("kind", KINDS)
def test_fourier_alignment_is_that_of_its_features(kind):
    inputs, particles, wanted = drawn(7, 4), drawn(*SYSTEMS, 6, 4, seed=1), targets(kind)
    angles = inputs @ particles.mT
    features = torch.cat([angles.cos(), angles.sin()], -1) / 6**0.5
    found = FourierAlignment(inputs, wanted).potential(particles).mean(-1)
    torch.testing.assert_close(found, -pair_alignment(features, wanted))


def test_fourier_alignment_is_the_mean_over_phases():
    """φ = √2 cos(ω·x + b): the mean over 8 equal steps of b is exact, the products being of degree 2."""
    inputs, particles, wanted = drawn(7, 4), drawn(6, 4, seed=1), targets("sign")
    phases = torch.arange(8, dtype=torch.float64)[:, None, None] * torch.pi / 4
    features = (2 / 6) ** 0.5 * (inputs @ particles.mT + phases).cos()
    found = FourierAlignment(inputs, wanted).potential(particles).mean()
    torch.testing.assert_close(found, -pair_alignment(features, wanted).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_fourier_drift_agrees_with_autograd(kind):
    alignment = FourierAlignment(drawn(7, 4), targets(kind))
    particles, generator = drawn(*SYSTEMS, 6, 4, seed=1), torch.Generator()
    wanted = autograd_drift(lambda moved, _: alignment.potential(moved).mean(-1))(particles, generator)
    torch.testing.assert_close(alignment.drift(particles, generator), wanted)


def test_a_drift_on_batches_is_unbiased():
    """Mean of 4,000 batches within 4.5 standard errors of the exact drift, in each of 8 coordinates (p < 1e-4)."""
    inputs, wanted, particles = drawn(7, 2), targets("class centred"), drawn(4, 2, seed=1)
    generator = torch.Generator().manual_seed(0)
    batched = FourierAlignment(inputs, wanted, batch_size=3)
    drifts = torch.stack([batched.drift(particles, generator) for _ in range(4000)])
    exact = FourierAlignment(inputs, wanted).drift(particles, generator)
    assert ((drifts.mean(0) - exact).abs() < 4.5 * drifts.std(0) / 4000**0.5).all()
    assert drifts.std(0).min() > 0


def test_a_centred_label_kernel_ignores_the_constant():
    constant = torch.zeros(1, 2, dtype=torch.float64)
    inputs = drawn(9, 2)
    lopsided = class_targets(torch.tensor([0] * 8 + [1]), 2).double()
    assert FourierAlignment(inputs, lopsided).potential(constant) < -0.5
    assert FourierAlignment(inputs, center(lopsided)).potential(constant).abs() < 0.1


@pytest.mark.parametrize("softening", [0.0, 0.3])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_repulsion_is_the_sum_over_pairs_and_its_drift_that_of_autograd(exponent, softening):
    particles, riesz = drawn(*SYSTEMS, 6, 4), Riesz(exponent, softening, block=4)
    total = 0.0
    for k, j in itertools.permutations(range(6), 2):
        r = ((particles[:, k] - particles[:, j]).square().sum(-1) + softening**2).sqrt()
        total = total + (-r.log() if exponent == 0 else r**-exponent if exponent > 0 else -(r**-exponent))
    torch.testing.assert_close(riesz.energy(particles), total / (2 * 6 * 5))
    wanted = autograd_drift(lambda moved, _: riesz.energy(moved))(particles, torch.Generator())
    torch.testing.assert_close(riesz.drift(particles), wanted)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_blocks_do_not_show_and_repulsion_repels(exponent):
    particles = drawn(*SYSTEMS, 6, 4)
    whole, blocks = Riesz(exponent, block=100), Riesz(exponent, block=1)
    torch.testing.assert_close(blocks.drift(particles), whole.drift(particles))
    torch.testing.assert_close(blocks.potential(particles), whole.potential(particles))
    pair = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    assert whole.drift(pair)[0, 1] > 0 > whole.drift(pair)[1, 1]


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that any operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.numbers = max(self.numbers, found.numel())
        return found


@pytest.mark.parametrize("count", [64, 256])
def test_memory_of_forces_is_linear_in_the_number_of_particles(count):
    """A block of 8 particles against all, in 4 dimensions, and never all against all."""
    with Largest() as largest:
        Riesz(1.0, block=8).drift(drawn(count, 4))
    assert largest.numbers == 8 * count * 4


def test_coulomb():
    assert Riesz.coulomb(3).exponent == 1.0
    assert Riesz.coulomb(2).exponent == 0.0


def test_particles_at_one_place_and_single_ones_stay_finite():
    for particles in (torch.zeros(2, 3), torch.ones(1, 3)):
        for exponent in EXPONENTS:
            assert torch.equal(Riesz(exponent).drift(particles), torch.zeros_like(particles))
    assert Riesz(1.0).potential(torch.zeros(2, 3)).isinf().all()
    assert Riesz(1.0, softening=0.5).potential(torch.zeros(2, 3)).tolist() == [2.0, 2.0]


def test_close_particles_lose_no_digits_in_float32():
    """1e-4 apart at distance 100 from the origin: the force is that of the difference as stored."""
    pair = torch.tensor([[100.0, 0.0], [100.0001, 0.0]])
    wanted = Riesz(1.0).drift(pair.double())
    torch.testing.assert_close(Riesz(1.0).drift(pair).double(), wanted, rtol=1e-6, atol=0.0)


def test_refusals():
    with pytest.raises(kf.KernelformerError, match="above -2"):
        Riesz(-2.0)
    with pytest.raises(kf.KernelformerError, match="softening"):
        Riesz(softening=-1.0)
    with pytest.raises(kf.KernelformerError, match="at least 2"):
        FourierAlignment(drawn(7, 4), targets("sign"), batch_size=1)
    with pytest.raises(kf.ShapeError, match="targets"):
        FourierAlignment(drawn(6, 4), targets("sign"))
    with pytest.raises(kf.ShapeError, match="targets"):
        pair_alignment(drawn(1, 4), targets("sign", 1))
