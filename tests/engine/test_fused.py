"""A map's fused form is the map: every map that gives one, at values off its start."""

from __future__ import annotations

import pytest
import torch

import kernelformer as kf
from kernelformer.features import FusedForm


def _build(name):
    kind = kf.FEATURE_MAPS[name]
    built = kind(6, 2) if kf.feature_maps.fixed_width(name) else kind(6, 2, 12)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return built.double()


def _evaluate(form: FusedForm, x):
    """phi(x) [B, H, N, M], as the docstring of FusedForm says it."""
    exponents = (torch.nn.functional.elu(x) + 1).log() if form.omega is None else x @ form.omega
    if form.bias is not None:
        exponents = exponents + form.bias[:, None]
    if form.is_normalised:
        return exponents.unflatten(-1, (form.groups, -1)).softmax(-1).flatten(-2)
    weight = torch.full_like(x[..., 0], form.constant)
    if form.tilt is not None:
        weight = weight + (x * form.tilt[:, None]).sum(-1)
    if form.damping is not None:
        weight = weight - form.damping[:, None] * x.square().sum(-1)
    if form.root is not None:
        weight = weight - (x @ form.root).square().sum(-1)
    return (exponents + weight[..., None]).exp()


@pytest.mark.parametrize("name", [name for name in kf.FEATURE_MAPS if _build(name).fused_form() is not None])
def test_form_is_the_map(name):
    feature_map = _build(name)
    x = torch.randn(2, 2, 5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for features in (feature_map.phi(x), feature_map.phi_q(x)):
        phi = features.values if features.log_scale is None else features.values * features.log_scale.exp()[..., None]
        torch.testing.assert_close(phi, _evaluate(feature_map.fused_form(), x))
    assert feature_map.is_positive
    assert not feature_map.floor


def test_the_maps_meant_have_a_form():
    assert {name for name in kf.FEATURE_MAPS if _build(name).fused_form() is not None} >= {
        "darkformer", "elu", "favor", "hedgehog", "lfk"
    }  # fmt: skip
