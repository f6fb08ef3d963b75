"""Fresh weights that a seed decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["fresh_weights"]


@contextmanager
def fresh_weights(seed: int) -> Iterator[None]:
    """What transformers draws from the global generator comes from ``seed``; the generator is as it was afterwards.

    Example:
        >>> import torch
        >>> with fresh_weights(0):
        ...     first = torch.nn.Linear(2, 2).weight
        >>> with fresh_weights(0):
        ...     bool((torch.nn.Linear(2, 2).weight == first).all())
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
