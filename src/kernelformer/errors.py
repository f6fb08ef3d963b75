"""The errors that kernelformer raises on purpose.

Each message says what was expected, what came, and what to do.
"""

from __future__ import annotations

__all__ = ["DataError", "KernelformerError", "ShapeError", "UnsupportedModelError"]


class KernelformerError(ValueError):
    """A request that cannot be met; the parent of every error below."""


class ShapeError(KernelformerError):
    """Tensors whose shapes or dtypes do not fit together."""


class UnsupportedModelError(KernelformerError):
    """A model whose attention cannot be replaced by kernel attention."""


class DataError(KernelformerError):
    """Text, labels or files that cannot be used as they are."""
