"""The six maps that see omega through a positive function, each against its formula."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import kernelformer as kf
from kernelformer.feature_maps import Cos2, EluProjected, PorfSoftplus, Sigmoid2, Softmaxfeat, Softplus
from kernelformer.feature_maps.coulomb import log_softplus

FORMULAS = {
    Softplus: functional.softplus,
    PorfSoftplus: functional.softplus,
    Sigmoid2: lambda z: z.sigmoid().square(),
    Softmaxfeat: torch.exp,
    EluProjected: lambda z: functional.elu(z) + 1,
    Cos2: lambda z: z.cos().square(),
}
MAPS = sorted(FORMULAS, key=lambda cls: cls.__name__)


def inputs(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("cls", MAPS)
def test_formula(cls) -> None:
    feature_map = cls(5, 3, 11, temperature=0.7)
    x = inputs()
    z = x @ feature_map.omega.double() / 0.7
    if cls is EluProjected:
        torch.nn.init.normal_(feature_map.bias, generator=torch.Generator().manual_seed(1))
        z = z + feature_map.bias
    if cls is Cos2:
        z = z + feature_map.phase
    expected = FORMULAS[cls](z)
    torch.testing.assert_close(feature_map.phi(x).values, expected / expected.sum(-1, keepdim=True))


@pytest.mark.parametrize("cls", MAPS)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_no_input_makes_all_features_vanish(cls, sign: float) -> None:
    feature_map = cls(1, 1, 4)
    with torch.no_grad():
        feature_map.omega.copy_(torch.tensor([[[1.0, 1.1, 1.2, 1.3]]]))
    x = (sign * torch.tensor([1e-4, 1.0, 300.0])[None, None, :, None]).requires_grad_()
    values = feature_map.phi(x).values
    torch.testing.assert_close(values.sum(-1), torch.ones(1, 1, 3))
    (gradient,) = torch.autograd.grad(values[..., 0].sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("cls", MAPS)
def test_frozen_maps_have_no_parameters(cls) -> None:
    assert not list(cls(5, 2, 8, trainable=False).parameters())
    assert "omega" in cls(5, 2, 8, trainable=False).state_dict()
    assert all(p.requires_grad for p in cls(5, 2, 8).parameters())


@pytest.mark.parametrize("cls", MAPS)
def test_temperature_is_positive(cls) -> None:
    with pytest.raises(kf.KernelformerError, match="temperature must be positive, got 0"):
        cls(5, 2, temperature=0)


def test_porf_starts_at_orthonormal_blocks() -> None:
    omega = PorfSoftplus(5, 2, 8).omega.detach()
    for block in (omega[..., :5], omega[..., 5:]):
        torch.testing.assert_close(block.mT @ block, torch.eye(block.shape[-1]).expand(2, -1, -1))
    norms = Softplus(5, 2, 8).omega.detach().norm(dim=1)
    assert norms.std() > 0.1, "softplus starts at Gaussian columns, of different norms"


def test_log_softplus() -> None:
    z = torch.tensor([-18.5, -18.0, -17.5, -1.0, 0.0, 3.0, 30.0], dtype=torch.float64)
    torch.testing.assert_close(log_softplus(z), functional.softplus(z, threshold=100.0).log(), rtol=1e-15, atol=0)
    far = torch.tensor([-700.0, -80.0, 60.0])
    torch.testing.assert_close(log_softplus(far), torch.tensor([-700.0, -80.0, 60.0]).where(far < 0, far.log()))
    near = torch.tensor([-18.0 - 1e-3, -18.0 + 1e-3], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(log_softplus(near).sum(), near)
    torch.testing.assert_close(slope[0], slope[1], rtol=1e-9, atol=0)
