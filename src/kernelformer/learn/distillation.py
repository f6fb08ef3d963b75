"""Fit kernels to the softmax attention of the model they stand in: layer by layer, one pass a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from kernelformer.attention import KernelAttention, LayerCall, kernels_of
from kernelformer.errors import KernelformerError
from kernelformer.learn.freezing import checkpoints, only_trainable
from kernelformer.learn.objectives import OutputError, layer_values, squared_errors
from kernelformer.learn.statistics import Batch
from kernelformer.learn.trainer import Schedule, fit

__all__ = ["distill", "layer_errors"]

_FLOOR_RAISE = 5.0


def distill(
    model: nn.Module,
    batches: Sequence[Batch],
    schedule: Schedule | None = None,
    *,
    objective: Callable[[LayerCall], Tensor] | None = None,
    folder: str | Path | None = None,
) -> list[tuple[int, float]]:
    """Train the kernels of a converted model, and nothing else, to give what softmax attention gives.

    Every layer sees the queries, keys and values of the softmax model, so all layers learn at once and independently;
    the loss is the mean of ``objective`` over layers. Memory is linear in the length. Signed maps learn under five
    times their floor.

    Args:
        model: converted by ``kernelformer.convert``, changed in place.
        batches: inputs of the model, padded, on its device; used in order, over and over.
        schedule: how long and how fast; None is 200 steps.
        objective: what a layer is taught; None is the relative squared error of its output.
        folder: where checkpoints go, from which an interrupted call goes on; None keeps none.

    Returns:
        The loss curve, (step, loss).

    Raises:
        KernelformerError: no converted layer, nothing to learn in the kernels, or no batch.
    """
    kernels = list(kernels_of(model).values())
    parameters = [parameter for kernel in kernels for parameter in kernel.parameters()]
    if not kernels or not len(batches):
        raise KernelformerError("distill needs a converted model and at least one batch")
    if not parameters:
        return []
    schedule = Schedule(steps=200) if schedule is None else schedule
    objective = OutputError() if objective is None else objective

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(layer_values(model, batch, objective)).mean()

    groups = [{"params": parameters, "lr": schedule.kernel_learning_rate}]
    with only_trainable(model, parameters), _raised_floors(kernels), checkpoints(folder) as kept:
        return fit(model, batches, loss, schedule, groups, kept, "distil kernels")


@contextmanager
def _raised_floors(kernels: Sequence[KernelAttention]) -> Iterator[None]:
    """Signed maps are taught with a higher floor than they will have, so that few rows meet the one they have."""
    maps = [kernel.feature_map for kernel in kernels if not kernel.feature_map.is_positive]
    before = [feature_map.floor for feature_map in maps]
    for feature_map, floor in zip(maps, before, strict=True):
        feature_map.floor = min(1.0, _FLOOR_RAISE * floor)
    try:
        yield
    finally:
        for feature_map, floor in zip(maps, before, strict=True):
            feature_map.floor = floor


@torch.no_grad()
def layer_errors(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    """‖kernel output - softmax output‖² / ‖softmax output‖² per converted layer, over the real tokens of all batches.

    Every layer is given what the softmax attention of the same weights would hand on.
    """
    total: Tensor | None = None
    for batch in batches:
        sums = torch.stack(layer_values(model, batch, squared_errors)).double()
        total = sums if total is None else total + sums
    return [] if total is None else (total[:, 0] / total[:, 1]).tolist()
