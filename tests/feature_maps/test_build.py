"""A map from its name: drawn from its seed, and of a width only where there is one to choose."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import build_feature_map, fixed_width, width_for
from kernelformer.feature_maps.elu import Elu


class Narrow(Elu):
    """Takes no num_features at all."""

    def __init__(self, head_dim, num_heads, *, generator=None):
        super().__init__(head_dim, num_heads, generator=generator)


def test_a_kernel_without_a_width_takes_none():
    name = f"{__name__}:Narrow"
    assert fixed_width(name) and width_for(name, 8) is None
    assert build_feature_map(name, 4, 1, width_for(name, 8)).num_features == 4


def test_seed_and_options_are_the_maps():
    first, again, other = (build_feature_map("favor", 4, 2, 8, seed=seed).omega for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert build_feature_map("flexformer_s", 4, 1, 8, options={"tilt": False}).tilt is None


def test_an_option_that_there_is_not_is_told():
    with pytest.raises(kf.KernelformerError, match=r"'elu' was given options it does not take.*'width'"):
        build_feature_map("elu", 4, 1, options={"width": 3})
