"""What the base class checks, scales and hides; what the drawing helpers promise."""

from __future__ import annotations

import math

import pytest
import torch

import kernelformer as kf
from kernelformer.features import orthogonal_gaussian, seeded


class Identity(kf.FeatureMap):
    is_positive = True
    calls: int = 0

    def phi(self, x):
        self.calls += 1
        return kf.Features(x)


@pytest.fixture
def identity():
    return Identity(4, 2, 4)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


@pytest.mark.parametrize("name", ["head_dim", "num_heads", "num_features"])
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8", None])
def test_sizes_are_positive_integers(name, size):
    sizes = {"head_dim": 4, "num_heads": 2, "num_features": 4, name: size}
    with pytest.raises(kf.KernelformerError, match=f"{name} must be a positive integer, got"):
        Identity(**sizes)


BAD_QUERIES = {
    r"q must be \[B, H, N, 4\], got \[2, 3, 4\]": zeros(2, 3, 4),
    r"q must be \[B, H, N, 4\], got \[1, 2, 3, 5\]": zeros(1, 2, 3, 5),
    r"q must be floating point, got torch.int64": zeros(1, 2, 3, 4, dtype=torch.int64),
    r"q has 3 heads, which is no multiple of the 2 heads of Identity": zeros(1, 3, 3, 4),
}
BAD_KEYS = {
    r"k must be \[B, H, N, 4\], got \[2, 4\]": zeros(2, 4),
    r"k must be \[B, H, N, 4\], got \[1, 2, 3, 5\]": zeros(1, 2, 3, 5),
    r"k must be floating point, got torch.bool": zeros(1, 2, 3, 4, dtype=torch.bool),
    r"k has 4 heads, Identity has 2": zeros(1, 4, 3, 4),
}


@pytest.mark.parametrize("message", BAD_QUERIES)
def test_bad_queries(identity, message):
    with pytest.raises(kf.ShapeError, match=message):
        identity.map_q(BAD_QUERIES[message])
    assert identity.calls == 0


@pytest.mark.parametrize("message", BAD_KEYS)
def test_bad_keys(identity, message):
    with pytest.raises(kf.ShapeError, match=message):
        identity.map_k(BAD_KEYS[message])
    assert identity.calls == 0


@pytest.mark.parametrize("mask", [zeros(1, 3), zeros(1, 4).bool(), zeros(3).bool(), zeros(1, 3, 1).bool()])
def test_bad_masks(identity, mask):
    with pytest.raises(kf.ShapeError, match=r"key_mask must be bool \[B, S\] = \[1, 3\], got"):
        identity.map_k(zeros(1, 2, 3, 4), key_mask=mask)
    assert identity.calls == 0


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_bad_scales(identity, scale):
    with pytest.raises(kf.ShapeError, match="scale must be positive and finite, got"):
        identity.map_q(zeros(1, 2, 3, 4), scale)


def test_the_scale_enters_by_its_root(identity):
    x = torch.randn(1, 2, 3, 4, generator=seeded(None), dtype=torch.float64)
    for scale, factor in ((None, 4**-0.25), (0.25, 0.5), (1.0, 1.0)):
        torch.testing.assert_close(identity.map_q(x, scale).values, factor * x)
        torch.testing.assert_close(identity.map_k(x, scale).values, factor * x)


def test_keys_are_shifted_and_queries_are_not(identity):
    x = torch.randn(1, 2, 3, 4, generator=seeded(None))
    shift = torch.randn(2, 4, generator=seeded(None))
    identity.key_shift.copy_(shift)
    torch.testing.assert_close(identity.map_k(x, 1.0).values, x - shift[:, None])
    torch.testing.assert_close(identity.map_q(x, 1.0).values, x)


def test_the_feature_map_never_sees_padding(identity):
    x = torch.full((1, 2, 3, 4), math.nan)
    x[:, :, 0] = 1.0
    mask = torch.tensor([[True, False, False]])
    values, log_scale, _ = identity.map_k(x, 1.0, mask)
    assert values.isfinite().all()
    assert log_scale.tolist() == [[[0.0, -math.inf, -math.inf]] * 2]


def test_positions_follow_grouped_queries():
    class Positions(Identity):
        def phi_at(self, x, positions, is_query):
            assert positions.shape == x.shape[2:3]
            return kf.Features(positions[:, None].expand_as(x).to(x.dtype))

    values, *_ = Positions(4, 2, 4).map_q(zeros(1, 6, 3, 4), positions=torch.arange(5, 8))
    assert values[..., 0].unique(dim=1).tolist() == [[[5.0, 6.0, 7.0]]]


@pytest.mark.parametrize("num_projections", [1, 3, 4, 9])
def test_orthogonal_within_blocks(num_projections):
    drawn = orthogonal_gaussian(2, 4, num_projections, seeded(None)).double()
    assert drawn.shape == (2, 4, num_projections)
    for block in drawn.split(4, dim=-1):
        gram = block.mT @ block
        torch.testing.assert_close(gram, torch.diag_embed(gram.diagonal(dim1=1, dim2=2)), atol=1e-5, rtol=0)


def test_draws_are_seeded():
    assert torch.equal(orthogonal_gaussian(1, 4, 4), orthogonal_gaussian(1, 4, 4, torch.Generator().manual_seed(0)))
    one, two = (orthogonal_gaussian(1, 4, 4, torch.Generator().manual_seed(n)) for n in (0, 1))
    assert not torch.equal(one, two)
    state = torch.get_rng_state()
    orthogonal_gaussian(1, 4, 4)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is nobody's to use"


@pytest.mark.parametrize("trainable", [True, False])
def test_omega_is_a_parameter_or_a_saved_buffer(trainable):
    class Projected(kf.ProjectedFeatureMap):
        is_positive = True

        def phi(self, x):
            return kf.Features(self.project(x))

    projected = Projected(4, 2, 6, num_projections=3, trainable=trainable)
    assert projected.omega.shape == (2, 4, 3)
    assert ("omega" in dict(projected.named_parameters())) is trainable
    assert "omega" in projected.state_dict()
    assert projected.project(zeros(1, 2, 5, 4, dtype=torch.float64)).dtype == torch.float64
