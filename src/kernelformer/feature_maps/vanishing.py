"""What the ReLU-like maps share: a scale, and a feature for queries that vanish. Not a map itself.

A query whose features all vanish is unlike every key to the same degree, so that it deserves the mean of
the visible values. One more feature gives it just that: 1 on every key, and on a query 1 if all its
others vanish, else 0. The kernel of such a query is 1 everywhere; that of any other is unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.features import Features

__all__ = ["key_features", "query_features", "scaled"]


def scaled(features: Tensor) -> tuple[Tensor, Tensor]:
    """Features >= 0 as values in [0, 1] and the log_scale of the largest; all zeros have log_scale 0."""
    top = features.detach().amax(-1, keepdim=True)
    top = torch.where(top > 0, top, 1.0)
    return features / top, top[..., 0].log()


def query_features(values: Tensor, log_scale: Tensor) -> Features:
    """A last feature that is 1 where all the others are 0."""
    vanished = values.detach().amax(-1) <= 0
    values = torch.cat([values, vanished[..., None].to(values.dtype)], dim=-1)
    return Features(values, log_scale.masked_fill(vanished, 0.0))


def key_features(values: Tensor, log_scale: Tensor) -> Features:
    """A last feature that is 1; log_scale rises to at least 0, so that it is representable."""
    risen = log_scale.detach().clamp_min(0.0)
    values = values * (log_scale - risen).exp()[..., None]
    return Features(torch.cat([values, (-risen).exp()[..., None]], dim=-1), risen)
