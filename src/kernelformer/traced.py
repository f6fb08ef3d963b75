"""Whether Python may look at the values of a tensor, and so choose its way by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["is_traced", "is_transformed"]


def is_traced(x: Tensor) -> bool:
    """True under torch.compile, export, tracing and torch.func, for tensor subclasses, and off the CPU.

    There a look at a value is an error, or makes an accelerator wait: the engine then takes the form that needs none.
    """
    return x.device.type != "cpu" or is_transformed(x)


def is_transformed(x: Tensor) -> bool:
    """True under torch.compile, export, tracing and torch.func, and for tensor subclasses."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or type(x) not in (Tensor, nn.Parameter)
        or torch._C._are_functorch_transforms_active()
    )
