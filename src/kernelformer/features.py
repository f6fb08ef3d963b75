"""The contract between feature maps and the engine, and nothing else.

A feature map phi stands for the kernel k(q, k) = phi(q)·phi(k). It returns :class:`Features`, that
is phi in a form that neither overflows nor loses small values; the engine needs nothing more.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from kernelformer.errors import KernelformerError, ShapeError

__all__ = [
    "FeatureMap",
    "Features",
    "FusedForm",
    "Moments",
    "ProjectedFeatureMap",
    "orthogonal_gaussian",
    "seeded",
    "softmax_scale",
]


_LARGEST = 1 << 31


class Features(NamedTuple):
    """phi(x) = values · exp(log_scale).

    Shape:
        values: [B, H, N, M]; for positive maps in [0, 1], for signed maps of norm at most 1.
        log_scale: [B, H, N], or None for zeros; -inf for a key that must not be seen.
        log_decay: [B, H, N] <= 0 for keys of a gated map, else None: before a key enters the sums of causal
            attention, they are multiplied by exp(log_decay); 0 for a key that must not be seen.
    """

    values: Tensor
    log_scale: Tensor | None = None
    log_decay: Tensor | None = None


class Moments(NamedTuple):
    """First and second moments of the scaled queries and keys that a layer sees, per head of the map.

    Shape:
        query_mean, key_mean: [H, D]; query_square, key_square: [H, D, D], the means of x xᵀ, uncentred.
    """

    query_mean: Tensor
    key_mean: Tensor
    query_square: Tensor
    key_square: Tensor


class FusedForm(NamedTuple):
    """A positive map as plain tensors, which a backend evaluates beside its sums instead of calling ``phi``.

    The exponents are e = x·omega + bias. With ``is_normalised`` phi is the softmax of each of ``groups`` equal parts
    of e, without a scale. Otherwise phi = exp(e + x·tilt - damping·‖x‖² - ‖x·root‖² + constant), the largest
    exponent and what follows it in ``log_scale``. Where ``omega`` is None, e is the logarithm of elu(x) + 1.

    Shape:
        omega [H, D, M]; bias [H, M]; tilt [H, D]; damping [H]; root [H, D, R].
    """

    omega: Tensor | None
    bias: Tensor | None = None
    tilt: Tensor | None = None
    damping: Tensor | None = None
    root: Tensor | None = None
    constant: float = 0.0
    groups: int = 1
    is_normalised: bool = False


class FeatureMap(nn.Module, ABC):
    """Base of every feature map: one map per key head, shared by queries and keys.

    Authors write :meth:`phi` for an input that is already scaled, x·sqrt(scale), so that
    softmax attention is the kernel exp(x·y) for every map, and declare ``is_positive``.
    :meth:`map_q` and :meth:`map_k` are what callers use; they check shapes once.

    ``key_shift`` [H, D], zero at first, is subtracted from every scaled key. Softmax attention does not change by
    it, since exp(q·(k - c)) differs from exp(q·k) by a factor of the query alone; the estimate of it does.

    A signed map also sets ``floor`` > 0: the engine then keeps the denominator above
    floor · Σ_j exp(log_scale_j), the floor relative to the key mass.

    Args:
        head_dim: D, the width of one head.
        num_heads: H, the number of maps: the number of key/value heads, or of query heads.
        num_features: M, the width of phi(x), at least 1.

    Raises:
        KernelformerError: a size is not a positive integer.
    """

    is_positive: ClassVar[bool]
    is_gated: ClassVar[bool] = False
    """Whether keys carry a ``log_decay``; older keys then count less, and attention must be causal."""
    learning_rate: ClassVar[float] = 1e-2
    """The rate at which this map's parameters are distilled unless a caller says otherwise."""
    key_shift: Tensor

    def __init__(self, head_dim: int, num_heads: int, num_features: int) -> None:
        super().__init__()
        for name, size in (
            ("head_dim", head_dim),
            ("num_heads", num_heads),
            ("num_features", num_features),
        ):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise KernelformerError(f"{name} must be a positive integer, got {size!r}")
        if num_heads * head_dim * num_features > _LARGEST:
            raise KernelformerError(
                f"{num_heads} heads of width {head_dim} with {num_features} features have a state of more than "
                f"{_LARGEST:,} numbers: give fewer features"
            )
        self.head_dim = head_dim
        self.num_heads = num_heads
        self.num_features = num_features
        self.floor = 0.0
        self.register_buffer("key_shift", torch.zeros(num_heads, head_dim))

    @abstractmethod
    def phi(self, x: Tensor) -> Features:
        """Features of x [B, H, N, D], already multiplied by sqrt(scale), float32 or float64."""

    def phi_q(self, x: Tensor) -> Features:
        """Features of queries, where they differ from those of keys."""
        return self.phi(x)

    def phi_at(self, x: Tensor, positions: Tensor | None, is_query: bool) -> Features:
        """Features of x at ``positions`` [N]; only maps that depend on positions override it."""
        return self.phi_q(x) if is_query else self.phi(x)

    @property
    def sees_positions(self) -> bool:
        """Whether the map overrides :meth:`phi_at`, and so needs to be told positions."""
        return type(self).phi_at is not FeatureMap.phi_at

    def fused_form(self) -> FusedForm | None:
        """The map as plain tensors, the same for queries and keys; None where it has no such form."""
        return None

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Give what is learned its start value again, and redraw what is drawn; ``key_shift``, from data, stays."""

    @torch.no_grad()
    def start_from(self, moments: Moments) -> None:
        """Take start values from data: here the mean key as ``key_shift``; maps that know more extend it."""
        self.key_shift.copy_(moments.key_mean)

    @final
    def map_q(self, q: Tensor, scale: float | None = None, positions: Tensor | None = None) -> Features:
        """Features of queries [B, Hq, N, D]; Hq may be a multiple of ``num_heads``.

        Args:
            q: float16, bfloat16, float32 or float64; half precision is computed in float32.
            scale: the softmax scale, positive; None is head_dim ** -0.5.
            positions: [N] integers, used only by maps that depend on positions.

        Returns:
            Features whose values are [B, Hq, N, M].

        Raises:
            ShapeError: q is not [B, Hq, N, head_dim] or not floating point.
        """
        x = self._scaled(q, scale, "q")
        if q.shape[1] == self.num_heads:
            return self.phi_at(x, positions, True)
        if q.shape[1] % self.num_heads:
            raise ShapeError(
                f"q has {q.shape[1]} heads, which is no multiple of the {self.num_heads} heads of {type(self).__name__}"
            )
        groups = q.shape[1] // self.num_heads
        batch, heads, length, dim = q.shape
        if positions is not None:
            positions = positions.repeat(groups)
        grouped = self.phi_at(x.reshape(batch, self.num_heads, groups * length, dim), positions, True)
        log_scale = grouped.log_scale
        return Features(
            grouped.values.reshape(batch, heads, length, grouped.values.shape[-1]),
            None if log_scale is None else log_scale.reshape(batch, heads, length),
        )

    @final
    def map_k(
        self,
        k: Tensor,
        scale: float | None = None,
        key_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Features:
        """Features of keys [B, H, S, D]; keys with ``key_mask`` False get log_scale = -inf.

        The content of masked keys, NaN included, never reaches :meth:`phi`.

        Raises:
            ShapeError: k is not [B, num_heads, S, head_dim], or key_mask not bool [B, S].
        """
        if k.ndim == 4 and k.shape[1] != self.num_heads:
            raise ShapeError(f"k has {k.shape[1]} heads, {type(self).__name__} has {self.num_heads}")
        x = self._scaled(k, scale, "k")
        x = x - self.key_shift.to(x.dtype)[:, None]
        if key_mask is None:
            return self.phi_at(x, positions, False)
        if key_mask.dtype != torch.bool or key_mask.shape != (k.shape[0], k.shape[2]):
            raise ShapeError(
                f"key_mask must be bool [B, S] = [{k.shape[0]}, {k.shape[2]}], "
                f"got {key_mask.dtype} {list(key_mask.shape)}"
            )
        hidden = ~key_mask[:, None, :]
        features = self.phi_at(x.masked_fill(hidden[..., None], 0.0), positions, False)
        log_scale = features.log_scale
        if log_scale is None:
            log_scale = features.values.new_zeros(features.values.shape[:-1])
        log_decay = None if features.log_decay is None else features.log_decay.masked_fill(hidden, 0.0)
        return Features(features.values, log_scale.masked_fill(hidden, -math.inf), log_decay)

    def _scaled(self, x: Tensor, scale: float | None, name: str) -> Tensor:
        if x.ndim != 4 or x.shape[-1] != self.head_dim:
            raise ShapeError(f"{name} must be [B, H, N, {self.head_dim}], got {list(x.shape)}")
        if not x.dtype.is_floating_point:
            raise ShapeError(f"{name} must be floating point, got {x.dtype}")
        scale = softmax_scale(self.head_dim, scale)
        if not 0 < scale < math.inf:
            raise ShapeError(f"scale must be positive and finite, got {scale}")
        if x.dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        return x * math.sqrt(scale)


class ProjectedFeatureMap(FeatureMap):
    """A map that sees its input through ``omega`` [H, D, R] alone: R projections per head.

    The columns of omega are frequencies of a spectral map, random projections of a positive map,
    and the particles of the Coulomb method, which therefore works on any projected map.

    Args:
        num_projections: R; M for most maps, M / 2 for maps that pair cos and sin.
        trainable: omega is a parameter if True, a persistent buffer if False.
    """

    def __init__(
        self, head_dim: int, num_heads: int, num_features: int, *, num_projections: int, trainable: bool
    ) -> None:
        super().__init__(head_dim, num_heads, num_features)
        omega = torch.empty(num_heads, head_dim, num_projections)
        if trainable:
            self.omega: Tensor = nn.Parameter(omega)
        else:
            self.register_buffer("omega", omega)

    def project(self, x: Tensor) -> Tensor:
        """x·omega: [B, H, N, D] -> [B, H, N, R], in the dtype of x."""
        return x @ self.omega.to(x.dtype)


def softmax_scale(head_dim: int, scale: float | None) -> float:
    """``scale`` where it is given, else the usual head_dim ** -0.5."""
    return head_dim**-0.5 if scale is None else scale


def seeded(generator: torch.Generator | None) -> torch.Generator:
    """The given CPU generator, or a fresh one of seed 0: no draw is ever unseeded."""
    return torch.Generator(device="cpu").manual_seed(0) if generator is None else generator


def orthogonal_gaussian(
    num_heads: int, head_dim: int, num_projections: int, generator: torch.Generator | None = None
) -> Tensor:
    """Draw [H, D, R] columns, each N(0, I), orthogonal within every block of D columns.

    The directions are Haar distributed: the signs of diag(R) of the QR decomposition are
    multiplied in, without which positive-feature estimates are biased. The norms are those of
    independent Gaussian vectors.

    References:
        Choromanski et al. 2021, arXiv 2009.14794.
    """
    generator = seeded(generator)
    blocks = -(-num_projections // head_dim)
    shape = (num_heads, blocks, head_dim, head_dim)
    gauss = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    q, r = torch.linalg.qr(gauss)
    q = q * torch.diagonal(r, dim1=-2, dim2=-1).sign()[..., None, :]
    norms = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").norm(dim=-2)
    columns = (q * norms[..., None, :]).transpose(1, 2).reshape(num_heads, head_dim, blocks * head_dim)
    start: Tensor = columns[..., :num_projections]
    return start.float()
