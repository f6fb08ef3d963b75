"""Cutting the sequence and its features, and joining what came of the pieces."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.engine.state import Attended
from kernelformer.features import Features

__all__ = ["cut", "join", "whole_and_rest"]


def whole_and_rest(length: int, size: int) -> list[tuple[slice, int]]:
    """All whole chunks of this size together, and the rest as one smaller chunk, each with the size of its chunks."""
    whole = length // size * size
    parts = ((slice(0, whole), size), (slice(whole, length), length - whole))
    return [(rows, size) for rows, size in parts if rows.start < rows.stop]


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
