"""What a training may change, and where it keeps its checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

__all__ = ["checkpoints", "only_trainable"]


@contextmanager
def only_trainable(model: nn.Module, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Freeze all but ``parameters``; restore every ``requires_grad`` afterwards."""
    chosen = {id(parameter) for parameter in parameters}
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    for parameter, _ in before:
        parameter.requires_grad_(id(parameter) in chosen)
    try:
        yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)


@contextmanager
def checkpoints(folder: str | Path | None) -> Iterator[Path]:
    """The folder for checkpoints; None is one that is gone afterwards."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as kept:
        yield Path(kept)
