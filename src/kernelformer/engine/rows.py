"""Cutting features along the sequence, and joining what came of the pieces."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.engine.state import Attended
from kernelformer.features import Features

__all__ = ["cut", "join"]


def cut(features: Features, rows: slice) -> Features:
    """The tokens ``rows`` alone."""
    values, *rest = features
    return Features(values[:, :, rows], *(None if x is None else x[:, :, rows] for x in rest))


def join(parts: list[Attended], q: Features, k: Features, v: Tensor) -> Attended:
    """The rows of consecutive parts of q, k and v."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        # No row, but a gradient (zero) for whoever asks.
        row = q.values.sum(-1, keepdim=True) + k.values.sum() + v.sum()
        return Attended(row.expand(*row.shape[:3], v.shape[-1]), torch.zeros_like(row[..., 0], dtype=torch.bool))
    return Attended(*(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True)))
