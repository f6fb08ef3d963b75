"""cos and sin of the same angles, in turns, times an amplitude. Not a map itself.

On a CPU, torch's cos and sin cost more than all matrix products of a spectral map. Here one reduction of the angle and
two short polynomials serve both. A pass over memory costs more than its arithmetic, so the factors that spectral
maps need anyway are part of the last one.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernelformer.traced import is_traced

__all__ = ["TURN", "circle", "cosine"]

TURN = 0.5 / math.pi
"""Turns in an angle of 1."""

# sin(pi r) / r and 2 cos(pi r) on |r| <= 1/2 as polynomials in r², at Chebyshev nodes of [0, 1/4]: error below 1e-7.
_SIN = (3.14159264, -5.167710077, 2.550077387, -0.5982904113, 0.07765591228)
_COS = (1.999999906, -9.869585605, 8.116821582, -2.663745946, 0.4393648472)

# Below it, sixteen small calls take longer than two slow ones.
_FEW = 1 << 13


def circle(turns: Tensor, amplitude: Tensor) -> Tensor:
    """amplitude · [cos 2 pi turns, sin 2 pi turns], joined along the last dimension.

    Domain and numerics: many float32 angles on a CPU to 1e-7 · max(1, |angle|), the rounding of the angle itself;
    otherwise torch's own cos and sin. Infinite turns give NaN.

    Shape:
        turns [..., R], amplitude the same or a number [] -> [..., 2 R].
    """
    if _is_plain(turns):
        angles = turns / TURN
        return torch.cat([amplitude * angles.cos(), amplitude * angles.sin()], dim=-1)
    joined: Tensor = _Circle.apply(turns, amplitude)  # type: ignore[no-untyped-call]
    return joined


def cosine(turns: Tensor, amplitude: float) -> Tensor:
    """amplitude · cos 2 pi turns; as :func:`circle`."""
    if _is_plain(turns):
        return amplitude * (turns / TURN).cos()
    out: Tensor = _Cosine.apply(turns, amplitude)  # type: ignore[no-untyped-call]
    return out


def _is_plain(turns: Tensor) -> bool:
    return turns.dtype != torch.float32 or is_traced(turns) or turns.numel() < _FEW


class _Circle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, turns: Tensor, amplitude: Tensor) -> Tensor:
        rest, square = _reduced(turns)
        half_sin, half_cos = _polynomial(_SIN, square).mul_(rest), _polynomial(_COS, square)
        ctx.save_for_forward(turns, amplitude)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(turns, amplitude, half_sin, half_cos)
        out = turns.new_empty(*turns.shape[:-1], 2 * turns.shape[-1])
        cos, sin = out.chunk(2, dim=-1)
        # sin 2 pi r = sin(pi r) · 2 cos(pi r), cos 2 pi r = 1 - 2 sin²(pi r)
        scaled = torch.mul(half_sin, amplitude, out=rest)
        torch.mul(scaled, half_cos, out=sin)
        torch.addcmul(amplitude, scaled, half_sin, value=-2, out=cos)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor | None]:
        turns, amplitude, half_sin, half_cos = ctx.saved_tensors
        if torch.is_grad_enabled():
            cos, sin = (turns / TURN).cos(), (turns / TURN).sin()
        else:
            cos, sin = 1.0 - 2.0 * half_sin.square(), half_sin * half_cos
        d_cos, d_sin = d_out.chunk(2, dim=-1)
        d_turns = (d_sin * cos - d_cos * sin) * (amplitude / TURN)
        if not ctx.needs_input_grad[1]:
            return d_turns, None
        return d_turns, (d_cos * cos + d_sin * sin).sum_to_size(amplitude.shape)

    @staticmethod
    def jvp(ctx: Any, d_turns: Tensor | None, d_amplitude: Tensor | None) -> Tensor:
        turns, amplitude = ctx.saved_tensors[:2]
        cos, sin = (turns / TURN).cos(), (turns / TURN).sin()
        along = 0.0 if d_turns is None else d_turns * (amplitude / TURN)
        out = 0.0 if d_amplitude is None else d_amplitude
        return torch.cat([out * cos - along * sin, out * sin + along * cos], dim=-1)


class _Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, turns: Tensor, amplitude: float) -> Tensor:
        rest, square = _reduced(turns)
        half_sin = _polynomial(_SIN, square).mul_(rest)
        ctx.amplitude = amplitude
        ctx.save_for_forward(turns)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(turns, square, half_sin)
        return torch.addcmul(turns.new_tensor(amplitude), half_sin, half_sin, value=-2.0 * amplitude)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None]:
        turns, square, half_sin = ctx.saved_tensors
        plain = torch.is_grad_enabled()
        sin = (turns / TURN).sin() if plain else _polynomial(_COS, square).mul_(half_sin)
        return d_out * sin * (-ctx.amplitude / TURN), None

    @staticmethod
    def jvp(ctx: Any, d_turns: Tensor, _: None) -> Tensor:
        d_out: Tensor = d_turns * (ctx.saved_tensors[0] / TURN).sin() * (-ctx.amplitude / TURN)
        return d_out


def _reduced(turns: Tensor) -> tuple[Tensor, Tensor]:
    """r = turns less the nearest whole, and r²."""
    rest = turns.round()
    torch.sub(turns, rest, out=rest)
    return rest, rest * rest


def _polynomial(coefficients: tuple[float, ...], square: Tensor) -> Tensor:
    """Five terms in ``square``, by Horner's rule."""
    value = torch.add(square.new_tensor(coefficients[3]), square, alpha=coefficients[4])
    for coefficient in coefficients[2::-1]:
        torch.addcmul(square.new_tensor(coefficient), value, square, out=value)
    return value
