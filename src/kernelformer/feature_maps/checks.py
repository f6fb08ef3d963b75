"""What the feature maps check about their arguments, in one wording. Not a map itself."""

from __future__ import annotations

from kernelformer.errors import KernelformerError

__all__ = ["check_even", "check_floor", "check_positive", "fixed_width"]


def fixed_width(name: str, width: int, num_features: int | None) -> int:
    """``width``, the only number of features that the map ``name`` has."""
    if num_features not in (None, width):
        raise KernelformerError(
            f"{name} has {width} features at this head_dim and these options, got num_features={num_features}: "
            "leave it out"
        )
    return width


def check_even(name: str, num_features: int) -> None:
    if num_features % 2:
        raise KernelformerError(f"{name} pairs its features: num_features must be even, got {num_features}")


def check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise KernelformerError(f"{name} must be positive, got {value}")


def check_floor(floor: float) -> None:
    if not 0 < floor <= 1:
        raise KernelformerError(f"floor must lie in (0, 1], got {floor}")
