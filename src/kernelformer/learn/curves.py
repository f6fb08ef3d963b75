"""Where the loss curves of trainings go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from kernelformer.errors import KernelformerError

__all__ = ["EVENTS", "tensorboard"]

EVENTS: ContextVar[Path | None] = ContextVar("EVENTS", default=None)
"""The folder for TensorBoard of the trainings that begin now; None is none."""


@contextmanager
def tensorboard(folder: str | Path | None) -> Iterator[None]:
    """Within, every training writes the entries of its loss curve to a folder of its own here; None writes nothing.

    Raises:
        KernelformerError: TensorBoard is not installed.
    """
    if folder is not None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise KernelformerError(
                f"events for TensorBoard need {error.name}: pip install 'kernelformer[tensorboard]'"
            ) from error
    before = EVENTS.set(None if folder is None else Path(folder))
    try:
        yield
    finally:
        EVENTS.reset(before)
