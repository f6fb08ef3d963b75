"""What the ReLU-like maps share: a scale, and a feature for queries that match no key. Not a map itself.

A query whose features all vanish is unlike every key to the same degree, so that it deserves the mean of
the visible values. One more feature gives it just that: 1 on every key, and on a query 1 if all its others
vanish. On any other query it is a share of the largest feature that is lost in rounding, unless no visible
key shares a feature with the query: then the row is 0 / 0 without it, and the mean with it.
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
    """A last feature that is 1 where all the others are 0, and next to nothing elsewhere."""
    vanished = values.detach().amax(-1) <= 0
    # Cubed rounding: far below any weight that float32 resolves, and its reciprocal is no overflow in gradients.
    last = torch.full_like(log_scale, torch.finfo(values.dtype).eps ** 3).masked_fill(vanished, 1.0)
    return Features(torch.cat([values, last[..., None]], dim=-1), log_scale.masked_fill(vanished, 0.0))


def key_features(values: Tensor, log_scale: Tensor) -> Features:
    """A last feature that is 1; log_scale rises to at least 0, so that it is representable."""
    risen = log_scale.detach().clamp_min(0.0)
    values = values * (log_scale - risen).exp()[..., None]
    return Features(torch.cat([values, (-risen).exp()[..., None]], dim=-1), risen)
