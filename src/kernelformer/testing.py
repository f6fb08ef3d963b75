"""The contract of a feature map as one check, for this package's maps and for a user's own."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from kernelformer.errors import KernelformerError
from kernelformer.features import FeatureMap, Features

__all__ = ["ContractError", "check_feature_map"]

_SCALES = (1e-4, 1e-2, 1.0, 30.0)
_ROUNDING = 1e-5
_STEP = 1e-6


class ContractError(KernelformerError, AssertionError):
    """A feature map that breaks a clause of the contract; the message names the clause."""


def check_feature_map(feature_map: FeatureMap, seed: int = 0) -> None:
    """Hold a feature map to the contract of :class:`kernelformer.FeatureMap`.

    Clauses: declaration, shapes, decay, dtypes, range, tokens, padding, groups, determinism, gradients, state.
    The map is copied, never changed. CPU; well under a second for common sizes.

    Args:
        feature_map: the map, as it would be given to ``KernelAttention``.
        seed: of the inputs.

    Raises:
        ContractError: a clause is broken; the message begins with its name.

    Example:
        >>> import kernelformer as kf
        >>> kf.testing.check_feature_map(kf.feature_maps.Hedgehog(head_dim=8, num_heads=2, num_features=16))
    """
    _require(isinstance(feature_map, FeatureMap), "declaration", f"{feature_map!r} is no kernelformer.FeatureMap")
    generator = torch.Generator().manual_seed(seed)
    feature_map = copy.deepcopy(feature_map).float()
    x = torch.randn(2, feature_map.num_heads, 5, feature_map.head_dim, generator=generator)
    _declaration(feature_map)
    _shapes(feature_map, x)
    _decay(feature_map, x)
    _dtypes(feature_map, x)
    for scale in _SCALES:
        _range(feature_map, scale * x, f"at inputs of scale {scale:g}")
        _finite_gradients(feature_map, scale * x, f"at inputs of scale {scale:g}")
    _tokens(feature_map, x)
    _padding(feature_map, x)
    _groups(feature_map, torch.cat([x, 2.0 * x], dim=1))
    _determinism(feature_map, x)
    _slopes(feature_map, x, generator)
    _state(feature_map, x)


def _require(holds: bool, clause: str, message: str) -> None:
    if not holds:
        raise ContractError(f"{clause}: {message}")


def _both(feature_map: FeatureMap, x: Tensor) -> list[tuple[str, Features]]:
    positions = torch.arange(x.shape[2])
    return [
        ("map_q", feature_map.map_q(x, positions=positions)),
        ("map_k", feature_map.map_k(x, positions=positions)),
    ]


def _phi(features: Features) -> Tensor:
    if features.log_scale is None:
        return features.values
    return features.values * features.log_scale.exp()[..., None]


def _at(features: Features, index: tuple[slice, ...]) -> Features:
    values, *rest = features
    return Features(values[index], *(None if x is None else x[index] for x in rest))


def _same(one: Features, other: Features, tolerance: float = 0.0) -> bool:
    """Equal features; equal bits where the tolerance is 0."""
    for a, b in zip(one, other, strict=True):
        if (a is None) != (b is None):
            return False
        if a is not None and b is not None and not torch.allclose(a, b, rtol=tolerance, atol=tolerance):
            return False
    return True


def _declaration(feature_map: FeatureMap) -> None:
    name = type(feature_map).__name__
    declared = getattr(type(feature_map), "is_positive", None)
    _require(isinstance(declared, bool), "declaration", f"{name}.is_positive must be True or False, got {declared!r}")
    floor = feature_map.floor
    if declared:
        _require(0 <= floor <= 1, "declaration", f"the floor of {name} must lie in [0, 1], got {floor}")
    else:
        _require(0 < floor <= 1, "declaration", f"{name} is signed: its floor must lie in (0, 1], got {floor}")


def _shapes(feature_map: FeatureMap, x: Tensor) -> None:
    for length in (0, 1, 3):
        for where, features in _both(feature_map, x[:, :, :length]):
            expected = [*x.shape[:2], length, feature_map.num_features]
            got = list(features.values.shape)
            _require(got == expected, "shapes", f"{where} must return values {expected}, got {got}")
            if features.log_scale is not None:
                got = list(features.log_scale.shape)
                _require(got == expected[:3], "shapes", f"{where} must return log_scale {expected[:3]}, got {got}")


def _decay(feature_map: FeatureMap, x: Tensor) -> None:
    """A gated map gives keys a log_decay <= 0, and no other map does."""
    name, positions = type(feature_map).__name__, torch.arange(x.shape[2])
    decay = feature_map.map_k(x, positions=positions).log_decay
    gated = type(feature_map).is_gated
    _require((decay is not None) == gated, "decay", f"{name}.is_gated is {gated}, log_decay of keys is {decay}")
    if decay is None:
        return
    _require(decay.shape == x.shape[:3], "decay", f"log_decay must be {list(x.shape[:3])}, got {list(decay.shape)}")
    _require(bool((decay <= 0).all() and decay.isfinite().all()), "decay", "log_decay must be finite and <= 0")
    mask = torch.zeros(x.shape[0], x.shape[2], dtype=torch.bool)
    hidden = feature_map.map_k(x, key_mask=mask, positions=positions).log_decay
    _require(hidden is not None and not hidden.any(), "decay", "log_decay must be 0 for masked keys")


def _dtypes(feature_map: FeatureMap, x: Tensor) -> None:
    lower = copy.deepcopy(feature_map).bfloat16()
    cases = [(feature_map, torch.float32, torch.float32), (feature_map, torch.float64, torch.float64)]
    cases += [(m, d, torch.float32) for m in (feature_map, lower) for d in (torch.float16, torch.bfloat16)]
    for mapped, given, expected in cases:
        exact = _both(mapped, x.to(given).to(expected))
        for (where, features), (_, same) in zip(_both(mapped, x.to(given)), exact, strict=True):
            got = {t.dtype for t in features if t is not None}
            _require(got == {expected}, "dtypes", f"{where} of {given} must return {expected}, got {got}")
            _require(_same(features, same), "dtypes", f"{where} of {given} must be computed in {expected}")


def _range(feature_map: FeatureMap, x: Tensor, case: str) -> None:
    for where, (values, log_scale, _) in _both(feature_map, x):
        _require(bool(values.isfinite().all()), "range", f"{where} returns NaN or inf values {case}")
        if log_scale is not None:
            _require(bool(log_scale.isfinite().all()), "range", f"{where} returns NaN or inf log_scale {case}")
        if type(feature_map).is_positive:
            low, high = values.min().item(), values.max().item()
            fits = low >= 0 and high <= 1 + _ROUNDING
            _require(fits, "range", f"positive maps have values in [0, 1], {where} gives {low} to {high} {case}")
            seen = bool((values.amax(-1) > 0).all())
            _require(seen, "range", f"{where} loses a token, all its features are 0 {case}: use log_scale")
        else:
            norm = values.norm(dim=-1).max().item()
            fits = norm <= 1 + _ROUNDING
            _require(fits, "range", f"signed maps have values of norm <= 1, {where} gives {norm} {case}")


def _tokens(feature_map: FeatureMap, x: Tensor) -> None:
    for (where, whole), (_, part) in zip(_both(feature_map, x), _both(feature_map, x[:1, :, :2]), strict=True):
        cut = _at(whole, (slice(1), slice(None), slice(2)))
        _require(_same(cut, part, _ROUNDING), "tokens", f"{where} of a token depends on other tokens of the batch")


def _padding(feature_map: FeatureMap, x: Tensor) -> None:
    mask = torch.ones(x.shape[0], x.shape[2], dtype=torch.bool)
    mask[:, 1::2] = False
    positions = torch.arange(x.shape[2])
    clean = feature_map.map_k(x, key_mask=mask, positions=positions)
    keys = x.masked_fill(~mask[:, None, :, None], math.nan).requires_grad_()
    features = feature_map.map_k(keys, key_mask=mask, positions=positions)
    _require(_same(features, clean), "padding", "the content of masked keys reaches the features")
    assert features.log_scale is not None
    hidden = (features.log_scale == -math.inf) == ~mask[:, None]
    _require(bool(hidden.all()), "padding", "log_scale must be -inf for masked keys, and for no other")
    if features.values.requires_grad:
        gradient: Tensor | None = torch.autograd.grad(features.values.sum(), keys, allow_unused=True)[0]
        finite = gradient is None or bool(gradient.isfinite().all())
        _require(finite, "padding", "NaN in masked keys gives gradients that are not finite")


def _groups(feature_map: FeatureMap, x: Tensor) -> None:
    positions = torch.arange(x.shape[2])
    grouped = feature_map.map_q(x, positions=positions)
    for group in (0, 1):
        alone = feature_map.map_q(x[:, group::2], positions=positions)
        part = _at(grouped, (slice(None), slice(group, None, 2)))
        _require(_same(part, alone, _ROUNDING), "groups", "two query heads per map must give what each gives alone")


def _determinism(feature_map: FeatureMap, x: Tensor) -> None:
    for training in (True, False):
        feature_map.train(training)
        for (where, one), (_, other) in zip(_both(feature_map, x), _both(feature_map, x), strict=True):
            _require(_same(one, other), "determinism", f"{where} gives different features for the same input")


def _finite_gradients(feature_map: FeatureMap, x: Tensor, case: str) -> None:
    x = x.clone().requires_grad_()
    trained = {name: p for name, p in feature_map.named_parameters() if p.requires_grad}
    total = torch.stack([t.sum() for _, f in _both(feature_map, x) for t in f if t is not None]).sum()
    if not total.requires_grad:
        return
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(total, [x, *trained.values()], allow_unused=True)
    for name, gradient in zip(["the input", *trained], gradients, strict=True):
        used = gradient is not None or name == "the input"
        _require(used, "gradients", f"parameter {name} takes no part in the features")
        finite = gradient is None or bool(gradient.isfinite().all())
        _require(finite, "gradients", f"the gradient of {name} is NaN or inf {case}")


class _Kernel(nn.Module):
    """Σ phi(x_i)·phi(x_j) over pairs of tokens, as a function of x and of the parameters."""

    def __init__(self, feature_map: FeatureMap) -> None:
        super().__init__()
        self.feature_map = feature_map

    def forward(self, x: Tensor) -> Tensor:
        (_, q), (_, k) = _both(self.feature_map, x)
        return (_phi(q) * _phi(k).flip(2)).sum()


def _slopes(feature_map: FeatureMap, x: Tensor, generator: torch.Generator) -> None:
    """The derivative of phi(x)·phi(y) in one direction, against a central difference in float64."""
    kernel = _Kernel(copy.deepcopy(feature_map).double())
    moved = {name: p for name, p in kernel.named_parameters() if p.requires_grad}
    start = [x.double().requires_grad_(), *moved.values()]
    way = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in start]

    def along(step: float) -> Tensor:
        point = [t + step * w for t, w in zip(start, way, strict=True)]
        value: Tensor = torch.func.functional_call(kernel, dict(zip(moved, point[1:], strict=True)), (point[0],))
        return value

    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(along(0.0), start, allow_unused=True)
    slope = sum(float((g * w).sum()) for g, w in zip(gradients, way, strict=True) if g is not None)
    with torch.no_grad():
        difference = float(along(_STEP) - along(-_STEP)) / (2 * _STEP)
    fits = math.isclose(slope, difference, rel_tol=1e-4, abs_tol=1e-5)
    _require(fits, "gradients", f"the derivative of phi(x)·phi(y) is {difference:.6g}, autograd gives {slope:.6g}")


def _state(feature_map: FeatureMap, x: Tensor) -> None:
    saved = copy.deepcopy(feature_map.state_dict())
    before = _both(feature_map, x)
    other = copy.deepcopy(feature_map)
    for (_, one), (_, two) in zip(before, _both(other, x), strict=True):
        _require(_same(one, two), "state", "a deep copy gives other features")
    other.reset_parameters(torch.Generator().manual_seed(12345))
    for (_, one), (_, two) in zip(before, _both(feature_map, x), strict=True):
        _require(_same(one, two), "state", "resetting a deep copy changed the original")
    other.load_state_dict(saved)
    for (_, one), (_, two) in zip(before, _both(other, x), strict=True):
        _require(_same(one, two), "state", "the state dict does not hold all that the features depend on")
