"""What a model's queries and keys look like, and kernels that start from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from kernelformer.attention import KernelAttention
from kernelformer.errors import DataError
from kernelformer.features import Moments
from kernelformer.learn.objectives import FarMass, MomentSums, layer_values

__all__ = ["START_BATCHES", "Batch", "gather_moments", "start_from_data"]

Batch = Mapping[str, Tensor]
"""Inputs of a model by their names."""

START_BATCHES: Final = 8
"""Batches from which kernels take their start: about 10,000 tokens, ten times what a covariance of 64 needs."""


@torch.no_grad()
def gather_moments(model: nn.Module, batches: Iterable[Batch]) -> dict[KernelAttention, Moments]:
    """Moments of the scaled queries and keys of every converted layer, under softmax attention.

    Args:
        model: a converted model; its layers hand on softmax outputs while they are looked at.
        batches: inputs of the model; a few thousand tokens are plenty.

    Raises:
        DataError: no batch.
    """
    sums = MomentSums()
    for batch in batches:
        layer_values(model, batch, sums)
    moments = sums.moments()
    if not moments:
        raise DataError("no statistics: give at least one batch, to a model with converted layers")
    return moments


@torch.no_grad()
def start_from_data(model: nn.Module, batches: Iterable[Batch]) -> None:
    """Give every kernel of ``model`` the start values that its map takes from the data.

    Attention with a window also takes its ``log_mix``: the factor that gives far keys the weight that softmax does.
    """
    batches = list(batches)
    found = gather_moments(model, batches)
    for kernel, moments in found.items():
        kernel.feature_map.start_from(moments)
    if all(kernel.log_mix is None for kernel in found):
        return
    far = FarMass()
    for batch in batches:
        layer_values(model, batch, far)
    for kernel, mean in far.means().items():
        assert kernel.log_mix is not None
        kernel.log_mix.copy_(mean)
