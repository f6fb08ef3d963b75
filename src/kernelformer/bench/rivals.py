"""Other implementations, each an optional import: what is missing is named, not skipped in silence."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelformer.errors import KernelformerError

__all__ = ["RIVALS", "Attend", "find_rival"]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def find_rival(name: str, head_dim: int, num_features: int, *, causal: bool) -> Attend | str:
    """A function of q, k, v [B, H, N, D], or why there is none.

    Raises:
        KernelformerError: no such name.
    """
    if name not in RIVALS:
        raise KernelformerError(f"no rival {name!r}; there are {', '.join(RIVALS)}")
    try:
        return RIVALS[name](head_dim, num_features, causal)
    except ImportError as error:
        return f"{name} is not installed ({error})"


def _sdpa(head_dim: int, num_features: int, causal: bool) -> Attend:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _performer(head_dim: int, num_features: int, causal: bool) -> Attend:
    package = importlib.import_module("performer_pytorch")
    # It says on stdout that its causal form falls back to plain torch without CUDA.
    with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        attention: Attend = package.FastAttention(dim_heads=head_dim, nb_features=num_features, causal=causal)
    return attention


def _fast_transformers(head_dim: int, num_features: int, causal: bool) -> Attend:
    """Its C++ kernel for causal products with elu + 1 at M = D; the package is built from source."""
    product: Any = importlib.import_module("fast_transformers.causal_product").causal_dot_product

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if not causal:
            return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2)[..., None])
        out: Tensor = product(q, k, v) / (q * k.cumsum(-2)).sum(-1, keepdim=True)
        return out

    return attend


RIVALS: Final[dict[str, Callable[[int, int, bool], Attend]]] = {
    "sdpa": _sdpa,
    "performer-pytorch": _performer,
    "fast-transformers": _fast_transformers,
}
