"""Other implementations, each an optional import: what is missing is named, with what to install."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelformer.errors import KernelformerError

__all__ = ["RIVALS", "Attend", "Rival", "find_rival"]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Rival(NamedTuple):
    """``build(head_dim, num_features, causal)`` imports the package; ``install`` says how to come by it."""

    build: Callable[[int, int, bool], Attend]
    install: str
    needs_cuda: bool = False
    is_causal_only: bool = False


def find_rival(name: str, head_dim: int, num_features: int, *, causal: bool, device: str = "cpu") -> Attend | str:
    """A function of q, k, v [B, H, N, D], or why there is none.

    Raises:
        KernelformerError: no such name.
    """
    if name not in RIVALS:
        raise KernelformerError(f"no rival {name!r}; there are {', '.join(RIVALS)}")
    rival = RIVALS[name]
    if rival.needs_cuda and not device.startswith("cuda"):
        return f"{name} needs a CUDA device"
    if rival.is_causal_only and not causal:
        return f"{name} has no bidirectional form"
    try:
        attend = rival.build(head_dim, num_features, causal)
    except ImportError as error:
        return f"{name} is not installed ({error}): {rival.install}"
    return attend.to(device) if isinstance(attend, torch.nn.Module) else attend


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
    """Its C++ kernel for causal products, with elu + 1 at M features."""
    product: Any = importlib.import_module("fast_transformers.causal_product").causal_dot_product

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = _elu_features(q, num_features), _elu_features(k, num_features)
        if not causal:
            return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2)[..., None])
        out: Tensor = product(q, k, v) / (q * k.cumsum(-2)).sum(-1, keepdim=True)
        return out

    return attend


def _simple_gla(head_dim: int, num_features: int, causal: bool) -> Attend:
    """Its chunked scan with scalar decay (here none), with elu + 1 at M features; it has the causal form alone."""
    scan: Any = importlib.import_module("fla.ops.simple_gla").chunk_simple_gla

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (_elu_features(q, num_features), _elu_features(k, num_features), v))
        decay = torch.zeros(q.shape[:3], dtype=torch.float32, device=q.device)
        num, _ = scan(q, k, v, g=decay, scale=1.0)
        den = (q * k.float().cumsum(1)).sum(-1, keepdim=True)
        out: Tensor = (num / den).transpose(1, 2).to(v.dtype)
        return out

    return attend


def _elu_features(x: Tensor, num_features: int) -> Tensor:
    """elu + 1 of [x, -x, x, ...], cut to M: the cheapest map there is, at the width of the kernels compared."""
    repeats = -(-num_features // (2 * x.shape[-1]))
    return F.elu(torch.cat([x, -x] * repeats, dim=-1)[..., :num_features]) + 1


RIVALS: Final[dict[str, Rival]] = {
    "sdpa": Rival(_sdpa, "it is torch's own"),
    "performer-pytorch": Rival(_performer, "pip install performer-pytorch"),
    "fast-transformers": Rival(
        _fast_transformers, "pip install --no-build-isolation pytorch-fast-transformers (built from C++)"
    ),
    "flash-linear-attention": Rival(
        _simple_gla, "pip install flash-linear-attention", needs_cuda=True, is_causal_only=True
    ),
}
