"""Train a classifier by cross-entropy; its kernels stay as they are, or train along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from kernelformer.attention import kernels_of
from kernelformer.errors import KernelformerError
from kernelformer.learn.freezing import checkpoints, only_trainable
from kernelformer.learn.langevin import Dynamics
from kernelformer.learn.particles import PAPER_DYNAMICS, AlignedOutputs, AlignSchedule, align
from kernelformer.learn.statistics import Batch
from kernelformer.learn.trainer import Schedule, Selection, fit

__all__ = ["align_and_train", "train_classifier"]


def train_classifier(
    model: nn.Module,
    batches: Sequence[Batch],
    schedule: Schedule | None = None,
    *,
    train_kernels: bool = False,
    selection: Selection | None = None,
    folder: str | Path | None = None,
) -> list[tuple[int, float]]:
    """Phase B, or plain training: all weights but the kernels', by the loss that the model returns, with its dropout.

    Args:
        model: a classifier of transformers, converted or not, or any model that returns a loss; changed in place.
        batches: inputs of the model with "labels", padded; used in order, over and over.
        schedule: how long and how fast; None is 1,000 steps.
        train_kernels: kernel parameters train as well, at ``schedule.kernel_learning_rate``. False freezes them.
        selection: which weights the model ends at; None is the last.
        folder: where checkpoints go, from which an interrupted call goes on; None keeps none.

    Returns:
        The loss curve, (step, loss).

    Raises:
        KernelformerError: no batch.
    """
    if not len(batches):
        raise KernelformerError("train_classifier needs at least one batch")
    schedule = Schedule(steps=1000) if schedule is None else schedule
    kernels = kernels_of(model).values()
    of_kernels = {id(parameter): parameter for kernel in kernels for parameter in kernel.parameters()}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in of_kernels]
    groups = [{"params": rest, "lr": schedule.learning_rate}]
    if train_kernels and of_kernels:
        groups.append({"params": list(of_kernels.values()), "lr": schedule.kernel_learning_rate})

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        found: Tensor = model(**batch).loss
        return found

    trained = [parameter for group in groups for parameter in group["params"]]  # type: ignore[attr-defined]
    with only_trainable(model, trained), checkpoints(folder) as kept:
        return fit(model, batches, loss, schedule, groups, kept, "train", selection=selection, dropout=True)


def align_and_train(
    model: nn.Module,
    batches: Sequence[Batch],
    dynamics: Dynamics = PAPER_DYNAMICS,
    align_schedule: AlignSchedule | None = None,
    schedule: Schedule | None = None,
    *,
    objective: AlignedOutputs | None = None,
    selection: Selection | None = None,
    folder: str | Path | None = None,
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Both phases: ``align``, then ``train_classifier`` with the kernels frozen.

    Returns:
        The curves of the energy and of the loss.
    """
    kept = None if folder is None else Path(folder)
    energies = align(
        model,
        batches,
        dynamics,
        align_schedule,
        objective=objective,
        folder=None if kept is None else kept / "particles",
    )
    losses = train_classifier(
        model, batches, schedule, selection=selection, folder=None if kept is None else kept / "rest"
    )
    return energies, losses
