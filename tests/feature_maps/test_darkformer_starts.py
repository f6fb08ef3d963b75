from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import Darkformer, Favor
from kernelformer.feature_maps.moments import optimal_proposal
from kernelformer.features import Moments

SQUARE = torch.diag(torch.tensor([0.4, 0.3, 0.2, 0.1, 0.05]))


def test_full_rank_starts_at_favor_and_a_lower_one_near_it(kernel, pair) -> None:
    assert torch.equal(kernel(Darkformer(5, 2, 12), *pair), kernel(Favor(5, 2, 12), *pair))
    low = Darkformer(5, 4000, 4, rank=2)
    assert low.omega.shape == (4000, 2, 4)
    covariance = (low.root.mT @ low.root).mean(0).detach()
    torch.testing.assert_close(covariance, torch.eye(5), rtol=0, atol=0.1)


@pytest.mark.parametrize("rank", [5, 2])
def test_unbiased_for_its_own_covariance(rank: int, assert_mean, pair) -> None:
    darkformer = Darkformer(5, 3000, 12, rank=rank, shared=True)
    assert darkformer.root.shape == (1, rank, 5)
    root = darkformer.root.detach().double()[0]
    assert_mean(darkformer, *pair, torch.exp((pair[0] @ root.T) @ (pair[1] @ root.T).T))


@pytest.mark.parametrize("shared", [False, True])
def test_whitened(shared: bool, seen) -> None:
    darkformer = Darkformer(5, 2, start="whitened", shared=shared)
    darkformer.start_from(seen(2, SQUARE))
    root = darkformer.root.detach()
    torch.testing.assert_close(root @ SQUARE @ root.mT, (5**-0.5 * torch.eye(5)).expand_as(root))


def test_whitened_low_rank_keeps_the_largest_axes(seen) -> None:
    darkformer = Darkformer(5, 1, rank=2, start="whitened")
    darkformer.start_from(seen(1, SQUARE))
    root = darkformer.root.detach()[0]
    torch.testing.assert_close(root @ SQUARE @ root.T, 5**-0.5 * torch.eye(2))
    assert not root[:, 2:].any()


def test_optimal(seen) -> None:
    darkformer = Darkformer(5, 2, start="optimal")
    darkformer.start_from(seen(2, SQUARE))
    expected = optimal_proposal(*2 * (SQUARE.double()[None],), None).float()
    root = darkformer.root.detach()
    torch.testing.assert_close(root.mT @ root, expected.expand_as(root))


def test_identity_takes_the_key_shift_alone() -> None:
    darkformer = Darkformer(5, 1)
    mean = torch.ones(1, 5)
    square = SQUARE[None] + 1.0
    darkformer.start_from(Moments(mean, mean, square, square))
    assert torch.equal(darkformer.root, torch.eye(5)[None])
    assert torch.equal(darkformer.key_shift, mean)


def test_redraw_keeps_the_root() -> None:
    darkformer = Darkformer(5, 1)
    with torch.no_grad():
        darkformer.root.mul_(2.0)
    before = darkformer.omega.clone()
    darkformer.redraw(torch.Generator().manual_seed(4))
    assert not torch.equal(darkformer.omega, before)
    assert torch.equal(darkformer.root, 2.0 * torch.eye(5)[None])


@pytest.mark.parametrize("options", [{"rank": 0}, {"rank": 6}, {"start": "best"}, {"largest": 0.5}])
def test_options_out_of_range(options) -> None:
    with pytest.raises(kf.KernelformerError, match=next(iter(options))):
        Darkformer(5, 1, **options)


def test_singular_moments_are_refused(seen) -> None:
    flat = torch.diag(torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0]))
    with pytest.raises(kf.KernelformerError, match="lower rank"):
        Darkformer(5, 1, start="whitened").start_from(seen(1, flat))


@pytest.mark.parametrize("trainable", [False, True])
def test_a_lower_rank_passes_the_contract(trainable: bool) -> None:
    kf.testing.check_feature_map(Darkformer(8, 2, 16, rank=3, shared=True, trainable_projections=trainable))
