"""The softmax of logits and that of their negatives together. Not a map itself.

On a CPU that is not Intel's, torch's softmax takes as long as a projection, most of it in exp. Here exp2 serves both
halves, written where they belong, and the backward pass needs the result alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernelformer.traced import is_traced

__all__ = ["two_softmaxes"]


def two_softmaxes(logits: Tensor) -> Tensor:
    """[softmax(logits), softmax(-logits)], joined along the last dimension.

    Shape:
        [..., R] -> [..., 2 R].
    """
    if is_traced(logits):
        # Stacked, not concatenated: inductor 2.13 on CPU computes wrong gradients for the latter.
        return torch.stack([logits, -logits], dim=-2).softmax(-1).flatten(-2)
    joined: Tensor = _TwoSoftmaxes.apply(logits)  # type: ignore[no-untyped-call]
    return joined


class _TwoSoftmaxes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        out = logits.new_empty(*logits.shape[:-1], 2, logits.shape[-1])
        first, second = out.unbind(-2)
        if logits.numel():
            torch.sub(logits, logits.amax(-1, keepdim=True), out=first)
            torch.sub(logits.amin(-1, keepdim=True), logits, out=second)
        out.mul_(1.0 / math.log(2.0)).exp2_()
        joined = out.div_(out.sum(-1, keepdim=True)).flatten(-2)
        ctx.save_for_backward(joined)
        ctx.save_for_forward(joined)
        return joined

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tensor:
        first, second = _slope(ctx.saved_tensors[0], d_out).unbind(-2)
        return first - second

    @staticmethod
    def jvp(ctx: Any, d_logits: Tensor) -> Tensor:
        both = torch.cat([d_logits, -d_logits], dim=-1)
        return _slope(ctx.saved_tensors[0], both).flatten(-2)


def _slope(joined: Tensor, way: Tensor) -> Tensor:
    """p · (way - Σ p · way) in each half: the derivative of softmax, which is symmetric."""
    halves, way = (x.unflatten(-1, (2, -1)) for x in (joined, way))
    product = halves * way
    return torch.addcmul(product, halves, product.sum(-1, keepdim=True), value=-1)
