"""kernelformer explain: which form computes a call, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelformer.cli.options import NumFeatures
from kernelformer.cli.verb import Answer, listed
from kernelformer.errors import KernelformerError

__all__ = ["explain"]


def explain(
    kernel: Annotated[str, typer.Argument(help='A kernel ("kernelformer list" names them), or module:Class.')],
    length: Annotated[int, typer.Option(help="Tokens N.")] = 4096,
    causal: Annotated[bool, typer.Option("--causal", help="Row i sees keys up to i.")] = False,
    head_dim: Annotated[int, typer.Option(help="Width D of a head.")] = 64,
    num_heads: Annotated[int, typer.Option(help="Heads H.")] = 8,
    num_features: NumFeatures = None,
    training: Annotated[bool, typer.Option("--training", help="Gradients are asked for.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> Answer:
    """Say what a kernel is, and which backend computes attention with it at a length, in what blocks and why."""
    import inspect

    import torch

    from kernelformer import engine
    from kernelformer.bench.clock import check_device
    from kernelformer.bench.spec import AttentionSpec
    from kernelformer.feature_maps import Softmax, find_feature_map

    if min(length, head_dim, num_heads) < 1:
        raise KernelformerError(
            f"length, head_dim and num_heads are at least 1, got {length}, {head_dim} and {num_heads}"
        )
    check_device(device)
    kind = find_feature_map(kernel)
    if kind is Softmax:
        raise KernelformerError("softmax has no features: PyTorch's scaled_dot_product_attention computes it")
    options = {"max_length": length} if "max_length" in inspect.signature(kind).parameters else {}
    feature_map = AttentionSpec(kernel, head_dim, num_heads, num_features, options).feature_map(0).to(device)
    # Expanded from one number: nothing of this length is ever in memory.
    x = torch.zeros(1, 1, 1, 1, device=device, requires_grad=training).expand(1, num_heads, length, head_dim)
    with torch.set_grad_enabled(training):
        choice = engine.explain(x, x, x, feature_map, causal=causal or kind.is_gated)
    docstring = inspect.getdoc(kind) or ""
    found = {
        "kernel": kernel,
        "formula": docstring.splitlines()[0],
        "features": feature_map.num_features,
        "positive": kind.is_positive,
        "floor": feature_map.floor,
        "parameters": sum(parameter.numel() for parameter in feature_map.parameters()),
        "backend": choice.backend,
        "block": choice.chunk_size,
        "reason": choice.reason,
    }
    return Answer(found, (listed(found),))
