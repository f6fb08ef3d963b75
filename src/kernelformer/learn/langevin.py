"""Projected Langevin dynamics of particles, to be stopped, saved, resumed, and thinned out by energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kernelformer.errors import KernelformerError, ShapeError
from kernelformer.learn.energy import Riesz

__all__ = ["Ball", "Box", "Domain", "Dynamics", "Langevin", "measure_distance", "resample"]

Drift = Callable[[Tensor, torch.Generator], Tensor]


class Domain(Protocol):
    """Where particles may be."""

    def project(self, particles: Tensor) -> Tensor:
        """The nearest place inside for each particle, [..., N, D] -> [..., N, D]."""


@dataclass(frozen=True)
class Ball:
    """‖ω‖ <= radius, to rounding."""

    radius: float

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise KernelformerError(f"the radius of a ball must be positive, got {self.radius}")

    def project(self, particles: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(particles, dim=-1, keepdim=True)
        return torch.where(norms > self.radius, particles * (self.radius / norms), particles)


@dataclass(frozen=True)
class Box:
    """low <= every coordinate <= high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise KernelformerError(f"a box needs low < high, got {self.low} and {self.high}")

    def project(self, particles: Tensor) -> Tensor:
        return particles.clamp(self.low, self.high)


@dataclass(frozen=True)
class Dynamics:
    """What one step does: ω_k ← P(ω_k + η clip(-∇V(ω_k) - λ/(N - 1) Σ_l ∇g(ω_k - ω_l)) + √(2 η / β) ξ_k).

    Attributes:
        step_size: η, positive.
        inverse_temperature: β, positive; inf leaves the noise ξ out.
        repulsion: g, or None.
        repulsion_weight: λ, not negative.
        domain: what P projects on; None is everywhere.
        max_drift: the norm that a particle's drift is clipped to, positive.

    Raises:
        KernelformerError: an argument out of its range.
    """

    step_size: float
    inverse_temperature: float = math.inf
    repulsion: Riesz | None = None
    repulsion_weight: float = 1.0
    domain: Domain | None = None
    max_drift: float = math.inf

    def __post_init__(self) -> None:
        if not (self.step_size > 0 and self.inverse_temperature > 0 and self.max_drift > 0):
            raise KernelformerError(
                "step_size, inverse_temperature and max_drift must be positive, got "
                f"{self.step_size}, {self.inverse_temperature}, {self.max_drift}"
            )
        if not self.repulsion_weight >= 0:
            raise KernelformerError(f"repulsion_weight must be 0 or more, got {self.repulsion_weight}")


class Langevin:
    """Particles, and the state of all that moves them.

    Args:
        particles: the start, [..., N, D]; projected on the domain, copied, and moved from then on.
        drift: gives -∇V of particles [..., N, D], and draws its batches, if any, by the generator it is handed:
            ``FourierAlignment.drift``, or ``autograd_drift`` of an energy.
        dynamics: what one step does.
        generator: draws batches and noise, on any device.
        num_directions: on which the movement of the empirical measure is looked at.

    Raises:
        ShapeError: particles of fewer than two dimensions, or not floating.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, algorithms 1 and 2.

    Example:
        >>> import torch
        >>> dynamics = Dynamics(step_size=0.1, repulsion=Riesz(), repulsion_weight=4.0)
        >>> pair = Langevin(torch.tensor([[0.1], [-0.1]]), lambda x, _: -x, dynamics, torch.Generator().manual_seed(0))
        >>> pair.run(500, tolerance=1e-6) < 500
        True
        >>> pair.particles[0] - pair.particles[1]  # -x/2 pulls, 4/x pushes
        tensor([2.8284])
    """

    def __init__(
        self,
        particles: Tensor,
        drift: Drift,
        dynamics: Dynamics,
        generator: torch.Generator,
        num_directions: int = 32,
    ) -> None:
        if particles.ndim < 2 or not particles.is_floating_point():
            raise ShapeError(
                f"particles are floating, [..., N, D], got {particles.dtype} of shape {tuple(particles.shape)}"
            )
        self.drift = drift
        self.dynamics = dynamics
        self.generator = generator
        self.steps = 0
        self.particles = self._project(particles.detach().clone())
        self.directions = self._noise((particles.shape[-1], num_directions))
        self.directions /= torch.linalg.vector_norm(self.directions, dim=0)

    @torch.no_grad()
    def step(self) -> None:
        """Move every particle once."""
        dynamics = self.dynamics
        force = self.drift(self.particles, self.generator)
        if dynamics.repulsion is not None and dynamics.repulsion_weight > 0:
            force = force + dynamics.repulsion_weight * dynamics.repulsion.drift(self.particles)
        if dynamics.max_drift < math.inf:
            force = Ball(dynamics.max_drift).project(force)
        moved = self.particles + dynamics.step_size * force
        if dynamics.inverse_temperature < math.inf:
            spread = math.sqrt(2.0 * dynamics.step_size / dynamics.inverse_temperature)
            moved = moved + spread * self._noise(tuple(moved.shape))
        self.particles = self._project(moved)
        self.steps += 1

    def run(self, max_steps: int, tolerance: float = 0.0) -> int:
        """Step until the empirical measure moves by less than ``tolerance`` in a step, ``max_steps`` at most.

        The movement is ``measure_distance``; with noise it does not fall to zero, so a tolerance is for β = inf or for
        noise well below it. With several systems, the one that moves most decides.

        Returns:
            How many steps were made.
        """
        for done in range(1, max_steps + 1):
            before = self.particles
            self.step()
            if tolerance > 0 and measure_distance(before, self.particles, self.directions).max() < tolerance:
                return done
        return max_steps

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next steps depend on besides the arguments, as contiguous tensors that share no memory."""
        return {
            "directions": self.directions.clone().contiguous(),
            "generator": self.generator.get_state().clone(),
            "particles": self.particles.clone().contiguous(),
            "steps": torch.tensor(self.steps),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state_dict()`` of an object with the same arguments; the steps that follow are the same bits.

        Raises:
            ShapeError: particles of another shape or dtype.
        """
        saved = state["particles"]
        if saved.shape != self.particles.shape or saved.dtype != self.particles.dtype:
            raise ShapeError(
                f"expected particles {tuple(self.particles.shape)} of {self.particles.dtype}, "
                f"got {tuple(saved.shape)} of {saved.dtype}"
            )
        self.particles = saved.to(self.particles.device, copy=True)
        self.directions = state["directions"].to(self.directions, copy=True)
        self.generator.set_state(state["generator"].cpu())
        self.steps = int(state["steps"])

    def _project(self, particles: Tensor) -> Tensor:
        return particles if self.dynamics.domain is None else self.dynamics.domain.project(particles)

    def _noise(self, shape: tuple[int, ...]) -> Tensor:
        drawn = torch.randn(shape, generator=self.generator, device=self.generator.device, dtype=self.particles.dtype)
        return drawn.to(self.particles.device)


def measure_distance(first: Tensor, second: Tensor, directions: Tensor) -> Tensor:
    """How far apart two clouds of particles are, whatever the order of either.

    The root of the mean over directions of the squared 2-Wasserstein distance of the projected clouds.

    Args:
        first, second: [..., N, D].
        directions: unit columns, [D, P].

    Returns:
        [...].

    References:
        Bonneel et al. 2015, Sliced and Radon Wasserstein barycenters of measures.
    """
    one, two = ((particles @ directions).sort(-2).values for particles in (first, second))
    return (one - two).square().mean((-2, -1)).sqrt()


def resample(
    energies: Tensor,
    inverse_temperature: float,
    count: int,
    generator: torch.Generator,
    *,
    replacement: bool = True,
) -> Tensor:
    """Indices of ``count`` particles of each system, drawn with weights proportional to exp(-β energy).

    The energy of a particle is V(ω_k) + λ/(N - 1) Σ_l g(ω_k - ω_l), ``FourierAlignment.potential`` plus λ times
    ``Riesz.potential``.

    Args:
        energies: [..., N].
        inverse_temperature: β, not negative; 0 draws uniformly.
        count: how many, at least 1, and at most N without replacement.
        generator: draws them.
        replacement: whether a particle may be drawn more than once.

    Returns:
        int64 [..., count].

    Raises:
        KernelformerError: an argument out of its range.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, algorithm 2.
    """
    available = energies.shape[-1]
    if count < 1 or (not replacement and count > available) or not 0 <= inverse_temperature < math.inf:
        raise KernelformerError(
            f"resample draws 1 or more of {available} particles (as many as there are with replacement=False) at a "
            f"finite inverse temperature of 0 or more, got count={count}, inverse_temperature={inverse_temperature}"
        )
    logits = -inverse_temperature * energies.detach().to(generator.device, torch.float64)
    if replacement:
        drawn = torch.multinomial(logits.softmax(-1).reshape(-1, available), count, True, generator=generator)
        return drawn.view(*energies.shape[:-1], count).to(energies.device)
    # Exponential clocks: the first `count` to ring are the draw, and no weight underflows to nothing.
    clocks = torch.empty_like(logits).exponential_(generator=generator).log() - logits
    return clocks.argsort(-1)[..., :count].to(energies.device)
