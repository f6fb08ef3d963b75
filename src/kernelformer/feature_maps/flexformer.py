"""What the two Flexformer maps share: learned frequencies, their start, phase and tilt. Not a map itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.checks import check_even, check_floor, check_positive
from kernelformer.feature_maps.circle import TURN
from kernelformer.feature_maps.moments import second_moments
from kernelformer.features import Features, Moments, ProjectedFeatureMap

__all__ = ["FlexformerFeatureMap"]


class FlexformerFeatureMap(ProjectedFeatureMap):
    """Angles omegaᵀx + b, shared by queries and keys or a set for each; a factor exp(tilt·x); b and tilt optional.

    Authors write ``values`` of the angles, the ``rate`` of log_scale = rate ‖x‖² + tilt·x and ``draw`` of the start,
    and call ``reset_parameters`` at the end of ``__init__``. Queries with a set of their own start at the keys' set;
    phases and tilt start at zero.

    Args:
        num_projections: R, the frequencies of one side.
        phase: learn b.
        tilt: learn a linear term of the exponent. That of the query cancels; of keys it is a weight of their own.
        shared: one set for queries and keys.
        angle_scale: ``start_from`` scales omega so that this is the root mean square of omegaᵀx over the data;
            None leaves omega.
        floor: the floor relative to the key mass, in (0, 1].

    Shape:
        omega [H, D, R], of keys, and of queries if shared; omega_q [H, D, R] if not; bias, bias_q [H, 1, R];
        tilt [H, D, 1].
    """

    name: ClassVar[str]
    is_positive = False
    learning_rate = 3e-2
    turns_per_angle: ClassVar[float] = TURN

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int,
        *,
        num_projections: int,
        phase: bool,
        tilt: bool,
        shared: bool,
        angle_scale: float | None,
        floor: float,
    ) -> None:
        check_even(self.name, num_features)
        check_floor(floor)
        if angle_scale is not None:
            check_positive("angle_scale", angle_scale)
        super().__init__(head_dim, num_heads, num_features, num_projections=num_projections, trainable=True)
        self.floor = floor
        self.angle_scale = angle_scale
        bias = (num_heads, 1, num_projections)
        self.bias = nn.Parameter(torch.empty(bias)) if phase else None
        self.tilt = nn.Parameter(torch.empty(num_heads, head_dim, 1)) if tilt else None
        self.omega_q = None if shared else nn.Parameter(torch.empty_like(self.omega))
        self.bias_q = nn.Parameter(torch.empty(bias)) if phase and not shared else None

    @abstractmethod
    def draw(self, generator: torch.Generator | None) -> Tensor:
        """The start of omega."""

    @abstractmethod
    def values(self, turns: Tensor) -> Tensor:
        """phi without its scale, [B, H, N, M], from ``turns_per_angle`` times the angles [B, H, N, R]."""

    @abstractmethod
    def rate(self, dtype: torch.dtype) -> Tensor:
        """The factor of ‖x‖² in log_scale, [H]."""

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        drawn = self.draw(generator)
        for omega in (self.omega, self.omega_q):
            if omega is not None:
                omega.copy_(drawn)
        for zero in (self.bias, self.bias_q, self.tilt):
            if zero is not None:
                zero.zero_()

    @torch.no_grad()
    def start_from(self, moments: Moments) -> None:
        """Take the mean key as ``key_shift``, and scale the frequencies where ``angle_scale`` is given.

        Raises:
            KernelformerError: moments that are none.
        """
        super().start_from(moments)
        if self.angle_scale is None:
            return
        queries, keys = second_moments(moments, self.num_heads, self.head_dim)
        if self.omega_q is None:
            _scale_angles(self.omega, 0.5 * (queries + keys), self.angle_scale)
        else:
            _scale_angles(self.omega, keys, self.angle_scale)
            _scale_angles(self.omega_q, queries, self.angle_scale)

    def phi(self, x: Tensor) -> Features:
        return self._features(x, self.omega, self.bias)

    def phi_q(self, x: Tensor) -> Features:
        if self.omega_q is None:
            return self.phi(x)
        return self._features(x, self.omega_q, self.bias_q)

    def _features(self, x: Tensor, omega: Tensor, bias: Tensor | None) -> Features:
        angles, factor = x @ omega.to(x.dtype), self.turns_per_angle
        turns = factor * angles if bias is None else torch.add(factor * bias.to(x.dtype), angles, alpha=factor)
        rate = self.rate(x.dtype)
        if self.tilt is None:
            return Features(self.values(turns), rate[:, None] * x.square().sum(-1))
        # One sum for both terms; a product with a single column takes longer.
        tilted = torch.addcmul(self.tilt.to(x.dtype).mT, rate[:, None, None], x)
        return Features(self.values(turns), (x * tilted).sum(-1))


def _scale_angles(omega: Tensor, squares: Tensor, angle_scale: float) -> None:
    given = omega.detach().to("cpu", torch.float64)
    size = (given * (squares @ given)).sum(1).mean(-1).clamp_min(0.0).sqrt()
    # Where the data does not vary there is nothing to scale by.
    factor = torch.where(size > 0, angle_scale / torch.where(size > 0, size, 1.0), 1.0)
    omega.copy_(given * factor[:, None, None])
