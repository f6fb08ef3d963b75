"""cos and sin of the same angles together. Not a map itself.

On a CPU, two calls of torch's cos and sin cost more than all matrix products of a spectral map. Here one reduction
of the angle and two short polynomials serve both, and the backward pass takes its derivatives from the output.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernelformer.traced import is_traced

__all__ = ["cos_sin"]

# sin(pi r) / r and 2 cos(pi r) on |r| <= 1/2 as polynomials in r², at Chebyshev nodes of [0, 1/4]: error below 1e-7.
_SIN = (3.14159264, -5.167710077, 2.550077387, -0.5982904113, 0.07765591228)
_COS = (1.999999906, -9.869585605, 8.116821582, -2.663745946, 0.4393648472)

# Below it, sixteen small calls take longer than two slow ones.
_FEW = 1 << 13


def cos_sin(angles: Tensor) -> Tensor:
    """[cos angles, sin angles], joined along the last dimension.

    Domain and numerics: many float32 angles on a CPU to 1e-7 · max(1, |angle|), the rounding of the angle itself;
    otherwise torch's own cos and sin. Infinite angles give NaN.

    Shape:
        [..., R] -> [..., 2 R].
    """
    if angles.dtype != torch.float32 or is_traced(angles) or angles.numel() < _FEW:
        return torch.cat([angles.cos(), angles.sin()], dim=-1)
    joined: Tensor = _CosSin.apply(angles)  # type: ignore[no-untyped-call]
    return joined


class _CosSin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, angles: Tensor) -> Tensor:
        out = _evaluate(angles)
        ctx.save_for_backward(out)
        ctx.save_for_forward(out)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tensor:
        cos, sin = ctx.saved_tensors[0].chunk(2, dim=-1)
        d_cos, d_sin = d_out.chunk(2, dim=-1)
        d_angles: Tensor = d_sin * cos - d_cos * sin
        return d_angles

    @staticmethod
    def jvp(ctx: Any, d_angles: Tensor) -> Tensor:
        cos, sin = ctx.saved_tensors[0].chunk(2, dim=-1)
        return torch.cat([-sin * d_angles, cos * d_angles], dim=-1)


def _evaluate(angles: Tensor) -> Tensor:
    """For r turns, less the nearest whole: sin 2 pi r = 2 sin(pi r) cos(pi r), cos 2 pi r = 1 - 2 sin²(pi r)."""
    out = angles.new_empty(*angles.shape[:-1], 2 * angles.shape[-1])
    cos, sin = out.chunk(2, dim=-1)
    turns = angles * (0.5 / math.pi)
    turns.sub_(turns.round())
    square = turns * turns
    fourth = square * square
    half_sin = _polynomial(_SIN, square, fourth).mul_(turns)
    torch.mul(half_sin, _polynomial(_COS, square, fourth), out=sin)
    torch.addcmul(angles.new_ones(()), half_sin, half_sin, value=-2, out=cos)
    return out


def _polynomial(coefficients: tuple[float, ...], square: Tensor, fourth: Tensor) -> Tensor:
    """Five terms in ``square``, by Estrin's scheme: four passes over memory."""
    first, third = square.new_tensor(coefficients[0]), square.new_tensor(coefficients[2])
    upper = torch.add(third, square, alpha=coefficients[3]).add_(fourth, alpha=coefficients[4])
    return torch.add(first, square, alpha=coefficients[1]).addcmul_(fourth, upper)
