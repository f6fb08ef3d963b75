"""What particles are moved by: alignment with labels pulls them, repulsion keeps them apart.

Particles are frequencies or projections, [..., N, D], one a row; leading dimensions, such as heads, are separate
systems. The columns of ``omega`` [H, D, N] are ``omega.mT``. The energy of one system is

    H(ω) = 1/N Σ_k V(ω_k) + λ W(ω),    W = 1/(2 N (N - 1)) Σ_{k≠l} g_s(ω_k - ω_l),

and the drift of a particle is -N ∂H/∂ω_k, which does not fade as N grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernelformer.errors import KernelformerError, ShapeError

__all__ = [
    "FourierAlignment",
    "Riesz",
    "autograd_drift",
    "center",
    "class_targets",
    "pair_alignment",
    "sign_targets",
    "target_alignment",
]


def sign_targets(labels: Tensor) -> Tensor:
    """Two classes, 0 and 1 (or bool), [n], as -1.0 and 1.0, [n, 1]: the label kernel is y_i y_j."""
    return torch.where(labels > 0, 1.0, -1.0)[:, None]


def class_targets(labels: Tensor, num_classes: int) -> Tensor:
    """Classes 0 to C - 1, int64 [n], as unit rows, [n, C]: the label kernel is 1 within a class, 0 across."""
    return functional.one_hot(labels, num_classes).to(torch.get_default_dtype())


def center(targets: Tensor) -> Tensor:
    """Targets minus their mean: the label kernel is centred, and a constant feature aligns with nothing.

    Center the targets of the whole set before drawing batches; batches centred one by one are biased.
    """
    return targets - targets.mean(0)


def pair_alignment(features: Tensor, targets: Tensor) -> Tensor:
    """1/(n (n - 1)) Σ_{i≠j} (t_i·t_j) (φ_i·φ_j), by sums over i alone: time and memory linear in n.

    A batch of rows drawn uniformly without replacement gives an unbiased estimate of the whole set's value, whatever
    its size, since the pairs i = j are left out.

    Args:
        features: φ(x_i), [..., n, M], scaled such that φ_i·φ_j is the kernel.
        targets: t_i, [n, C], as ``sign_targets`` or ``class_targets`` give them, centred or not.

    Returns:
        [...]; the energy is its negative.

    Raises:
        ShapeError: the rows differ in number, or are fewer than two.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, eq. of H_N; Cortes et al. 2012, arXiv 1203.0550 (centring).
    """
    _check_rows(features, targets)
    targets = targets.to(features)
    everything = (features.mT @ targets).square().sum((-2, -1))
    same = (features.square().sum(-1) * targets.square().sum(-1)).sum(-1)
    return (everything - same) / _pairs(targets)


def target_alignment(features: Tensor, targets: Tensor) -> Tensor:
    """Σ_ij K_ij L_ij / (‖K‖ ‖L‖) of K_ij = φ_i·φ_j and L_ij = t_i·t_j, both centred: 0 to 1, whatever their scales.

    Unlike ``pair_alignment`` its value on a batch is biased, and it does not grow with the features.

    Args:
        features: φ(x_i), [..., n, M].
        targets: t_i, [n, C]; centred here.

    Returns:
        [...]; 0 where the features or the targets do not vary. The energy is its negative.

    Raises:
        ShapeError: the rows differ in number, or are fewer than two.

    References:
        Cortes et al. 2012, arXiv 1203.0550; Badiei Khuzani et al. 2026, arXiv 2607.23869, appendix C.4.
    """
    _check_rows(features, targets)
    features = features - features.mean(-2, keepdim=True)
    targets = center(targets.to(features))
    gram = features @ features.mT
    size = gram.square().sum((-2, -1)) * (targets.mT @ targets).square().sum()
    # Where nothing varies the ratio is 0 / 0, and its gradient must not be NaN.
    varies = size > 0.0
    return (
        torch.where(varies, (features.mT @ targets).square().sum((-2, -1)), 0.0) / torch.where(varies, size, 1.0).sqrt()
    )


@dataclass(frozen=True, eq=False)
class FourierAlignment:
    """Alignment of the features cos(ω·x) and sin(ω·x), whose kernel is 1/N Σ_k cos(ω_k·(x - x')), in closed form.

    V(ω) = -1/(n (n - 1)) (‖Σ_i t_i exp(i ω·x_i)‖² - Σ_i ‖t_i‖²), the mean over b of that of √2 cos(ω·x + b).

    Args:
        inputs: x, [n, D].
        targets: t, [n, C], in the dtype of the inputs or one that converts to it.
        batch_size: rows that a drift looks at, drawn anew each time; None is all of them.

    Raises:
        ShapeError: the rows differ in number, or are fewer than two.
        KernelformerError: batch_size below 2.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, lemma 3.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> alignment = FourierAlignment(x, sign_targets(torch.tensor([0, 1])))
        >>> alignment.potential(torch.tensor([[0.0], [torch.pi]])).round()  # π sets the two points apart
        tensor([ 1., -1.])
    """

    inputs: Tensor
    targets: Tensor
    batch_size: int | None = None

    def __post_init__(self) -> None:
        _check_rows(self.inputs, self.targets)
        if self.batch_size is not None and self.batch_size < 2:
            raise KernelformerError(f"batch_size must be at least 2, for there to be a pair, got {self.batch_size}")

    def potential(self, particles: Tensor) -> Tensor:
        """V of each particle on all rows, [..., N, D] -> [..., N]."""
        _, _, cos_sum, sin_sum, targets = self._sums(particles, self.inputs, self.targets)
        squares = cos_sum.square().sum(-1) + sin_sum.square().sum(-1)
        return -(squares - targets.square().sum()) / _pairs(targets)

    def drift(self, particles: Tensor, generator: torch.Generator) -> Tensor:
        """-∇V of each particle, [..., N, D], on all rows or an unbiased estimate on a batch drawn by ``generator``."""
        inputs, targets = self._rows(generator)
        cos, sin, cos_sum, sin_sum, targets = self._sums(particles, inputs, targets)
        # d/dω ‖Σ t exp(iω·x)‖² = 2 Σ_i x_i (cos(ω·x_i) t_i·Σ t sin - sin(ω·x_i) t_i·Σ t cos).
        weights = cos * (sin_sum @ targets.mT) - sin * (cos_sum @ targets.mT)
        return 2.0 / _pairs(targets) * (weights @ inputs.to(particles))

    def _rows(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        count = len(self.inputs)
        if self.batch_size is None or self.batch_size >= count:
            return self.inputs, self.targets
        drawn = torch.randperm(count, generator=generator, device=generator.device)[: self.batch_size]
        drawn = drawn.to(self.inputs.device)
        return self.inputs[drawn], self.targets[drawn]

    @staticmethod
    def _sums(particles: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        angles = particles @ inputs.to(particles).mT
        targets = targets.to(particles)
        cos, sin = angles.cos(), angles.sin()
        return cos, sin, cos @ targets, sin @ targets, targets


@dataclass(frozen=True)
class Riesz:
    """Repulsion g_s(r): r^-s for s > 0, -log r for s = 0, -r^-s for -2 < s < 0, with r² = ‖ω - ω'‖² + softening².

    Forces are summed over blocks of particles: memory is block·N·D. Differences are taken before anything is squared,
    so that close particles lose no digits. Particles at the same place exert no force on each other unless softened.

    Args:
        exponent: s, above -2.
        softening: a length, not negative; 0 is the bare force.
        block: particles whose forces are computed at once.

    Raises:
        KernelformerError: an argument out of its range.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869.

    Example:
        >>> import torch
        >>> Riesz(1.0).drift(torch.tensor([[0.0, 0.0], [0.0, 0.5]]))
        tensor([[ 0., -4.],
                [ 0.,  4.]])
    """

    exponent: float = 0.0
    softening: float = 0.0
    block: int = 64

    def __post_init__(self) -> None:
        if not -2.0 < self.exponent < math.inf:
            raise KernelformerError(f"the exponent of Riesz repulsion must lie above -2, got {self.exponent}")
        if not self.softening >= 0.0 or self.block < 1:
            raise KernelformerError(
                f"softening must be 0 or more and block 1 or more, got {self.softening} and {self.block}"
            )

    @classmethod
    def coulomb(cls, dim: int, softening: float = 0.0) -> Riesz:
        """The repulsion of charges in ``dim`` dimensions: s = dim - 2."""
        return cls(exponent=dim - 2.0, softening=softening)

    def potential(self, particles: Tensor) -> Tensor:
        """1/(N - 1) Σ_{l≠k} g_s(ω_k - ω_l) of each particle, [..., N, D] -> [..., N].

        Infinite where two coincide, unless softened or s < 0. Under autograd all blocks are kept: N²·D numbers.
        """
        sums = []
        for start in range(0, particles.shape[-2], self.block):
            _, squares, other = self._pairs(particles, start)
            # The pair of a particle with itself is replaced before the power, not after: its gradient would be NaN.
            values = self._value(torch.where(other, squares, 1.0))
            sums.append(torch.where(other, values, 0.0).sum(-1))
        return torch.cat(sums, -1) / max(particles.shape[-2] - 1, 1)

    def energy(self, particles: Tensor) -> Tensor:
        """W, [..., N, D] -> [...]."""
        return 0.5 * self.potential(particles).mean(-1)

    @torch.no_grad()
    def drift(self, particles: Tensor) -> Tensor:
        """-1/(N - 1) Σ_{l≠k} ∇g_s(ω_k - ω_l) of each particle, [..., N, D]: -N ∂W/∂ω_k."""
        strength = 1.0 if self.exponent == 0.0 else abs(self.exponent)
        forces = []
        for start in range(0, particles.shape[-2], self.block):
            differences, squares, _ = self._pairs(particles, start)
            apart = squares > 0.0
            powers = torch.where(apart, squares, 1.0).pow(-0.5 * self.exponent - 1.0)
            forces.append((torch.where(apart, powers, 0.0)[..., None] * differences).sum(-2))
        return strength / max(particles.shape[-2] - 1, 1) * torch.cat(forces, -2)

    def _pairs(self, particles: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Differences [..., b, N, D], softened squared distances [..., b, N], and which pairs are of two, [b, N]."""
        rows = particles[..., start : start + self.block, :]
        differences = rows[..., :, None, :] - particles[..., None, :, :]
        squares = differences.square().sum(-1) + self.softening**2
        index = torch.arange(particles.shape[-2], device=particles.device)
        return differences, squares, index[start : start + self.block, None] != index

    def _value(self, squares: Tensor) -> Tensor:
        if self.exponent == 0.0:
            return -0.5 * squares.log()
        return math.copysign(1.0, self.exponent) * squares.pow(-0.5 * self.exponent)


def autograd_drift(
    energy: Callable[[Tensor, torch.Generator], Tensor],
) -> Callable[[Tensor, torch.Generator], Tensor]:
    """The drift -N ∂H/∂ω_k of any differentiable energy, for features without a closed form.

    Args:
        energy: H of particles [..., N, D] as [...], one value a system; draws its batches by the generator.
    """

    def drift(particles: Tensor, generator: torch.Generator) -> Tensor:
        with torch.enable_grad():
            moved = particles.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(energy(moved, generator).sum(), moved)
        return -particles.shape[-2] * gradient

    return drift


def _check_rows(rows: Tensor, targets: Tensor) -> None:
    if targets.ndim != 2 or rows.shape[-2] != len(targets) or len(targets) < 2:
        raise ShapeError(
            f"alignment needs rows [n, ...] and targets [n, C] with n at least 2, got {tuple(rows.shape)} "
            f"and {tuple(targets.shape)}"
        )


def _pairs(targets: Tensor) -> int:
    return len(targets) * (len(targets) - 1)
