"""Whether Python may look at the values of a tensor, and so choose its way by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["has_tangent", "is_functional", "is_traced", "is_transformed"]


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
        or is_functional()
    )


def is_functional() -> bool:
    """True within torch.func: grad, jvp, vmap and what is built of them."""
    return torch._C._are_functorch_transforms_active()


def has_tangent(x: Tensor) -> bool:
    """True for a dual tensor of forward-mode differentiation: it may not be written in place."""
    return torch.autograd.forward_ad.unpack_dual(x).tangent is not None
