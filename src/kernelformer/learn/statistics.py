"""What a model's queries and keys look like, and kernels that start from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from kernelformer.attention import KernelAttention
from kernelformer.errors import DataError
from kernelformer.features import Moments
from kernelformer.learn.objectives import MomentSums

__all__ = ["gather_moments", "start_from_data"]


@torch.no_grad()
def gather_moments(model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> dict[KernelAttention, Moments]:
    """Moments of the scaled queries and keys of every converted layer, under softmax attention.

    Args:
        model: a converted model; its layers hand on softmax outputs while they are looked at.
        batches: inputs of the model; a few thousand tokens are plenty.

    Raises:
        DataError: no batch.
    """
    sums = MomentSums()
    for batch in batches:
        model(**batch, layer_objective=sums, output_attentions=True)
    moments = sums.moments()
    if not moments:
        raise DataError("no statistics: give at least one batch, to a model with converted layers")
    return moments


def start_from_data(model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> None:
    """Give every kernel of ``model`` the start values that its map takes from the data."""
    for kernel, moments in gather_moments(model, batches).items():
        kernel.feature_map.start_from(moments)
