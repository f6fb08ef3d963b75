"""Each clause of the contract is broken once: a check that cannot fail checks nothing."""

from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf
from kernelformer.testing import ContractError, check_feature_map


class Sound(kf.FeatureMap):
    """A correct map to break: exp(w x) by its logarithm, with a drawn buffer."""

    is_positive = True

    def __init__(self, head_dim=4, num_heads=2):
        super().__init__(head_dim, num_heads, head_dim)
        self.weight = torch.nn.Parameter(torch.ones(num_heads, 1, head_dim))
        self.register_buffer("drawn", torch.zeros(num_heads, 1, head_dim))

    def reset_parameters(self, generator=None):
        with torch.no_grad():
            self.weight.fill_(1.0)
            self.drawn.copy_(torch.randn(self.drawn.shape, generator=generator))

    def phi(self, x):
        exponents = x * self.weight.to(x.dtype) + self.drawn.to(x.dtype)
        top = exponents.detach().amax(-1, keepdim=True)
        return kf.Features((exponents - top).exp(), top[..., 0])


class Undeclared(Sound):
    is_positive = None


class SignedWithoutFloor(Sound):
    is_positive = False


class Wider(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(torch.cat([values, values], dim=-1), log_scale)


class ScalePerFeature(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(values, log_scale[..., None])


class AlwaysSingle(Sound):
    def phi(self, x):
        return kf.Features(*(t.float() for t in super().phi(x)[:2]))


class LeavesHalf(Sound):
    def phi(self, x):
        return kf.Features(*(t.to(self.weight.dtype) for t in super().phi(x)[:2]))


class Overflows(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features((values * log_scale.exp()[..., None]).square(), None)


class Negative(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(values - 0.5, log_scale)


class Vanishes(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(values * (x > 0), log_scale)


class TooLong(Sound):
    is_positive = False

    def __init__(self):
        super().__init__()
        self.floor = 0.1

    def phi(self, x):
        return kf.Features((x * self.weight.to(x.dtype) + self.drawn.to(x.dtype)).cos())


class MaximumOverTokens(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        if not x.shape[2]:
            return kf.Features(values, log_scale)
        top = log_scale.detach().amax(-1, keepdim=True)
        return kf.Features(values * (log_scale - top).exp()[..., None], top.expand_as(log_scale))


class MixesHeads(Sound):
    def phi_at(self, x, positions, is_query):
        values, log_scale, _ = self.phi(x)
        # As if the groups of a head lay along its batch, not along its length.
        order = torch.arange(x.shape[2]).flip(0) if x.shape[2] > 5 else slice(None)
        return kf.Features(values[:, :, order], log_scale[:, :, order])


class Random(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(values * torch.rand(()), log_scale)


class UnusedParameter(Sound):
    def __init__(self):
        super().__init__()
        self.extra = torch.nn.Parameter(torch.zeros(1))


class RootOfZero(Sound):
    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(values, log_scale + 0 * (x - x).square().sum(-1).sqrt())


class DetachedScale(Sound):
    def phi(self, x):
        exponents = x * self.weight.to(x.dtype) + self.drawn.to(x.dtype)
        top = exponents.amax(-1, keepdim=True)
        return kf.Features((exponents - top).exp(), top[..., 0].detach())


class SecretGate(Sound):
    def phi(self, x):
        return super().phi(x)._replace(log_decay=-x.square().sum(-1))


class GrowingGate(SecretGate):
    is_gated = True

    def phi(self, x):
        return super().phi(x)._replace(log_decay=x.square().sum(-1))


class HiddenDraw(Sound):
    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(())

    def reset_parameters(self, generator=None):
        super().reset_parameters(generator)
        self.hidden = torch.rand((), generator=generator)

    def phi(self, x):
        values, log_scale, _ = super().phi(x)
        return kf.Features(values, log_scale + self.hidden.to(x.dtype))


BROKEN = {
    Undeclared: "declaration",
    SignedWithoutFloor: "declaration",
    Wider: "shapes",
    ScalePerFeature: "shapes",
    SecretGate: "decay",
    GrowingGate: "decay",
    AlwaysSingle: "dtypes",
    LeavesHalf: "dtypes",
    Overflows: "range",
    Negative: "range",
    Vanishes: "range",
    TooLong: "range",
    MaximumOverTokens: "tokens",
    MixesHeads: "groups",
    Random: "determinism|dtypes",
    UnusedParameter: "gradients",
    RootOfZero: "gradients",
    DetachedScale: "gradients",
    HiddenDraw: "state",
}


def test_a_sound_map_passes():
    check_feature_map(Sound())


@pytest.mark.parametrize("cls", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_clause_is_named(cls):
    with pytest.raises(ContractError, match=f"^({BROKEN[cls]}): "):
        check_feature_map(cls())


def test_padding_that_reaches_the_features(monkeypatch):
    real = kf.FeatureMap.map_k

    def leaking(self, k, scale=None, key_mask=None, positions=None):
        features = real(self, k, scale, None, positions)
        if key_mask is None:
            return features
        return kf.Features(features.values, features.log_scale.masked_fill(~key_mask[:, None], -math.inf))

    monkeypatch.setattr(kf.FeatureMap, "map_k", leaking)
    with pytest.raises(ContractError, match=r"^padding: "):
        check_feature_map(Sound())


def test_the_error_is_of_both_kinds():
    with pytest.raises(AssertionError):
        check_feature_map(Negative())
    with pytest.raises(kf.KernelformerError, match=r"no kernelformer\.FeatureMap"):
        check_feature_map(torch.nn.Linear(2, 2))


def test_the_map_given_is_not_changed():
    feature_map = Sound().bfloat16()
    feature_map.train(False)
    kept = {name: t.clone() for name, t in feature_map.state_dict().items()}
    check_feature_map(feature_map)
    assert not feature_map.training
    assert all(t.dtype == torch.bfloat16 for t in feature_map.state_dict().values())
    assert all(torch.equal(t, kept[name]) for name, t in feature_map.state_dict().items())
    assert all(p.grad is None for p in feature_map.parameters())
