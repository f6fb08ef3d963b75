from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.feature_maps import FlexformerS, Lfk, Spectral


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_start_is_an_unbiased_estimate_of_softmax(share: float, assert_mean, pair) -> None:
    assert_mean(Spectral(5, 3000, 24, fourier_share=share), *pair, torch.exp(pair[0] @ pair[1].T))


def test_without_growth_it_is_flexformer_s(kernel, pair) -> None:
    spectral, flexformer = Spectral(5, 2, 12, fourier_share=1.0), FlexformerS(5, 2, 12)
    with torch.no_grad():
        spectral.omega.copy_(flexformer.omega)
    torch.testing.assert_close(kernel(spectral, *pair), kernel(flexformer, *pair))


def test_without_frequencies_it_is_lfk(kernel, pair) -> None:
    spectral, lfk = Spectral(5, 2, 12, fourier_share=0.0), Lfk(5, 2, 6, projection_scale=1.0, weighted=False)
    torch.testing.assert_close(kernel(spectral, *pair), kernel(lfk, *pair))


def test_options_out_of_range() -> None:
    for options, message in (({"fourier_share": 1.1}, "fourier_share"), ({"floor": 2.0}, "floor")):
        with pytest.raises(kf.KernelformerError, match=message):
            Spectral(5, 1, **options)
