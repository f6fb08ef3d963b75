"""Kernels of attention learned as particles: the columns of ``omega`` of every head and layer align with labels.

Phase A (``align``) moves the particles and leaves the rest of the model alone; phase B (``train_classifier``) trains
the rest and leaves the kernels alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernelformer.attention import kernels_of
from kernelformer.errors import DataError, KernelformerError
from kernelformer.features import ProjectedFeatureMap
from kernelformer.learn.energy import Riesz, pair_alignment, target_alignment
from kernelformer.learn.freezing import only_trainable
from kernelformer.learn.langevin import Ball, Dynamics, Langevin, measure_distance
from kernelformer.learn.statistics import Batch

__all__ = ["PAPER_DYNAMICS", "AlignSchedule", "AlignedOutputs", "align", "alignment_energies", "particles_of"]

ALSO = ("nothing", "norms and values")

PAPER_DYNAMICS = Dynamics(
    step_size=2e-3,
    inverse_temperature=50.0,
    repulsion=Riesz(exponent=0.0),
    repulsion_weight=1e-3,
    domain=Ball(1.5),
    max_drift=10.0,
)
"""Those of the paper's text experiments: logarithmic repulsion in a ball of radius 1.5. arXiv 2607.23869, appendix."""


@dataclass(frozen=True)
class AlignedOutputs:
    """The energy that labels give to attention outputs: minus their alignment, one value a head.

    Sequence level: φ_i is the mean of a head's outputs over the real tokens of text i. Token level: every real token
    is a φ_i of its own, with the label of its text.

    Args:
        token_level: align tokens, not texts.
        normalised: ``target_alignment``, which cannot be raised by longer outputs alone, and not ``pair_alignment``.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, appendices C.4 and C.5.
    """

    token_level: bool = False
    normalised: bool = False

    def __call__(self, out: Tensor, key_mask: Tensor | None, targets: Tensor) -> Tensor:
        """Outputs [B, H, N, D], key_mask [B, N] or None, targets [B, C] -> [H]."""
        alignment = target_alignment if self.normalised else pair_alignment
        if self.token_level:
            real = out.new_ones(out.shape[0], out.shape[2], dtype=torch.bool) if key_mask is None else key_mask
            tokens = out.transpose(1, 2)[real].transpose(0, 1)
            return -alignment(tokens, targets.repeat_interleave(real.sum(1), 0))
        if key_mask is None:
            pooled = out.mean(2)
        else:
            real = key_mask[:, None, :, None]
            pooled = out.masked_fill(~real, 0.0).sum(2) / real.sum(2).clamp_min(1)
        return -alignment(pooled.transpose(0, 1), targets)


@dataclass(frozen=True)
class AlignSchedule:
    """How long phase A goes on, and what moves besides particles.

    Attributes:
        steps: of the dynamics, one batch each, at most.
        tolerance: stop when a step moves the particles of every head by less (``measure_distance``); 0 never does.
        also: "nothing", or "norms and values": LayerNorm and value projections follow the gradient of the same
            energy, too, by Adam.
        learning_rate: of those.
        save_steps: a checkpoint every so many steps, from which an interrupted call goes on.
        seed: of the noise.
    """

    steps: int = 400
    tolerance: float = 0.0
    also: str = "nothing"
    learning_rate: float = 1e-3
    save_steps: int = 100
    seed: int = 0


def particles_of(model: nn.Module) -> Tensor:
    """The particles of every layer and head, a copy, [L, H, N, D]: the columns of ``omega``.

    Raises:
        KernelformerError: a kernel without ``omega``, no kernel at all, or layers whose particles differ in number.
    """
    maps = _maps(model)
    return torch.stack([feature_map.omega.detach().mT for feature_map in maps.values()])


def alignment_energies(
    model: nn.Module, particles: Tensor, batch: Batch, targets: Tensor, objective: AlignedOutputs
) -> Tensor:
    """The energy of each layer's and head's particles on one batch, [L, H], differentiable in ``particles``.

    Args:
        model: converted; every later layer sees what the earlier ones make of their particles.
        particles: [L, H, N, D], in the place of the model's own.
        batch: inputs of the model, without labels.
        targets: t, [B, C].
    """
    maps = _maps(model)
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
            found[name] = objective(out, args[3] if len(args) > 3 else None, targets)

        return hook

    kernels = {name.rpartition(".")[0]: name for name in maps}
    hooks = [model.get_submodule(path).register_forward_hook(keep(name)) for path, name in kernels.items()]
    moved = {f"{name}.omega": particles[index].mT for index, name in enumerate(maps)}
    try:
        torch.func.functional_call(model, moved, (), dict(batch))
    finally:
        for handle in hooks:
            handle.remove()
    return torch.stack([found[name] for name in maps])


def align(
    model: nn.Module,
    batches: Sequence[Batch],
    dynamics: Dynamics = PAPER_DYNAMICS,
    schedule: AlignSchedule | None = None,
    *,
    objective: AlignedOutputs | None = None,
    folder: str | Path | None = None,
) -> list[tuple[int, float]]:
    """Phase A: projected Langevin dynamics of the particles of every head and layer, on

        H = Σ_heads (-alignment of the head's attention outputs with the labels + λ W(particles)).

    Everything else stays as it is, to the bit, but for what ``schedule.also`` says; no dropout. The targets are the
    unit vectors of the classes, centred over all batches, so that two texts of one class pull, two of different
    classes push, and longer outputs alone gain nothing.

    Args:
        model: converted by ``kernelformer.convert`` to kernels with ``omega``; changed in place.
        batches: inputs of the model with "labels", int64 [B] from 0; used in order, over and over.
        dynamics: of the particles.
        schedule: how long; None is 400 steps.
        objective: what aligns; None is sequence level, not normalised.
        folder: where checkpoints go, from which an interrupted call goes on to the same bits; None keeps none.

    Returns:
        The curve of the alignment's energy summed over heads, (step, mean since the entry before).

    Raises:
        KernelformerError: no kernel with ``omega``, no batch, or layers whose particles differ in number.
        DataError: labels of one class alone.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, algorithm 1 and section 3.3.
    """
    schedule = AlignSchedule() if schedule is None else schedule
    phase = _Alignment(model, batches, dynamics, schedule, AlignedOutputs() if objective is None else objective)
    was_training = model.training
    model.eval()
    try:
        with only_trainable(model, phase.others):
            curve = phase.run(None if folder is None else Path(folder))
    finally:
        model.train(was_training)
    with torch.no_grad():
        for feature_map, particles in zip(_maps(model).values(), phase.langevin.particles, strict=True):
            feature_map.omega.copy_(particles.mT)
    return curve


class _Alignment:
    """Phase A under way."""

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        dynamics: Dynamics,
        schedule: AlignSchedule,
        objective: AlignedOutputs,
    ) -> None:
        if not len(batches):
            raise KernelformerError("align needs at least one batch")
        if schedule.also not in ALSO:
            raise KernelformerError(f"also is one of {', '.join(ALSO)}, got {schedule.also!r}")
        particles = particles_of(model)
        self.model, self.batches, self.schedule, self.objective = model, batches, schedule, objective
        self.shares = _class_shares(batches).to(particles)
        self.others = _norms_and_values(model) if schedule.also != "nothing" else []
        self.optimizer = torch.optim.Adam(self.others, lr=schedule.learning_rate) if self.others else None
        generator = torch.Generator(device="cpu").manual_seed(schedule.seed)
        self.langevin = Langevin(particles, self._drift, dynamics, generator)
        self.sums: list[float] = []
        self.curve: list[tuple[int, float]] = []

    def run(self, folder: Path | None) -> list[tuple[int, float]]:
        schedule, langevin = self.schedule, self.langevin
        if folder is not None:
            self._resume(folder)
        every = max(1, schedule.steps // 50)
        while langevin.steps < schedule.steps:
            before = langevin.particles
            langevin.step()
            if self.optimizer is not None:
                self.optimizer.step()
            if langevin.steps % every == 0:
                self.curve.append((langevin.steps, sum(self.sums) / len(self.sums)))
                self.sums = []
            moved = measure_distance(before, langevin.particles, langevin.directions).max()
            if moved < schedule.tolerance:
                break
            if folder is not None and langevin.steps % schedule.save_steps == 0:
                self._save(folder)
        return self.curve

    def _drift(self, particles: Tensor, _: torch.Generator) -> Tensor:
        """-N ∂H/∂ω_k on the batch of this step; what else moves gets its gradients on the way."""
        batch = dict(self.batches[self.langevin.steps % len(self.batches)])
        labels = batch.pop("labels")
        targets = nn.functional.one_hot(labels, len(self.shares)).to(particles) - self.shares
        with torch.enable_grad():
            moved = particles.detach().requires_grad_()
            energy = alignment_energies(self.model, moved, batch, targets, self.objective).sum()
            gradient, *others = torch.autograd.grad(energy, [moved, *self.others], allow_unused=True)
        for parameter, found in zip(self.others, others, strict=True):
            parameter.grad = found
        self.sums.append(float(energy.detach()))
        return -particles.shape[-2] * gradient

    def _save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "langevin": self.langevin.state_dict(),
            "others": [parameter.detach() for parameter in self.others],
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "curve": self.curve,
            "sums": self.sums,
        }
        torch.save(state, folder / "particles.partial")
        os.replace(folder / "particles.partial", folder / "particles.pt")

    @torch.no_grad()
    def _resume(self, folder: Path) -> None:
        kept = folder / "particles.pt"
        if not kept.is_file():
            return
        state = torch.load(kept, weights_only=True)
        self.langevin.load_state_dict(state["langevin"])
        for parameter, saved in zip(self.others, state["others"], strict=True):
            parameter.copy_(saved)
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self.curve = [(int(step), float(energy)) for step, energy in state["curve"]]
        self.sums = list(state["sums"])


def _maps(model: nn.Module) -> dict[str, ProjectedFeatureMap]:
    """Path -> projected map, of every kernel of the model."""
    maps: dict[str, ProjectedFeatureMap] = {}
    for name, kernel in kernels_of(model).items():
        if not isinstance(kernel.feature_map, ProjectedFeatureMap):
            raise KernelformerError(
                f"particles are the columns of omega, and {type(kernel.feature_map).__name__} has none: convert to a "
                "kernel with projections, for example softmaxfeat, favor or cos2"
            )
        maps[f"{name}.feature_map"] = kernel.feature_map
    shapes = {tuple(feature_map.omega.shape) for feature_map in maps.values()}
    if len(shapes) != 1:
        raise KernelformerError(
            "align needs a converted model whose layers have particles of one shape [heads, width, number], got "
            f"{sorted(shapes) or 'no converted layer'}"
        )
    return maps


def _class_shares(batches: Sequence[Batch]) -> Tensor:
    """The share of each class over all batches, [C], float64."""
    counts = torch.bincount(torch.cat([batch["labels"].reshape(-1).cpu() for batch in batches])).double()
    if len(counts) < 2 or int((counts > 0).sum()) < 2:
        raise DataError("alignment needs labels of at least two classes, numbered from 0")
    return counts / counts.sum()


def _norms_and_values(model: nn.Module) -> list[nn.Parameter]:
    found: dict[int, nn.Parameter] = {}
    for name, module in model.named_modules():
        is_value = isinstance(module, nn.Linear) and name.rpartition(".")[2] in ("value", "v_lin", "v_proj", "v")
        if is_value or isinstance(module, nn.LayerNorm | nn.RMSNorm):
            found |= {id(parameter): parameter for parameter in module.parameters()}
    return list(found.values())
