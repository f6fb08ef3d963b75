"""Key scales as powers of two, so that a scale shared along a chunk changes no bit of any row.

exp(log_scale - base) = fraction · 2^whole with an integer ``whole`` and 1 <= fraction < 2. The fraction is
multiplied into the features; what is left is an exact power of two, and floating-point sums commute
with those. All rows can thus share one reference, if that of a row never depends on a later key. Hence
``base`` is what came before (or the first visible key), and the reference 2^whole of a row starts at 1
and moves up only at a key that exceeds it by more than 2^HEADROOM: ``references`` finds those, in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["HEADROOM", "LN2", "Reference", "Scales", "references", "split_scales"]

LN2 = math.log(2.0)
# Sums may exceed their reference by 2^16 times the length: far from float32's 2^127.
HEADROOM = 16.0


class Scales(NamedTuple):
    """exp(log_scale - base) = fraction · 2^whole, [B, H, N]; a hidden key has fraction 0 and whole -inf."""

    base: Tensor
    fraction: Tensor
    whole: Tensor


class Reference(NamedTuple):
    """From row ``start`` [B, H] on, ``weights`` [B, H, N] are key scales over 2^whole, ``whole`` [B, H]."""

    start: Tensor
    whole: Tensor
    weights: Tensor


def split_scales(log_scale: Tensor, before: Tensor) -> Scales:
    """Split log scales [B, H, N], given the reference ``before`` [B, H] of the state; -inf if it is empty.

    ``base`` and ``whole`` are constants to the gradient.
    """
    hidden = log_scale.detach() == -torch.inf
    first = log_scale.detach().gather(-1, (~hidden).to(torch.uint8).argmax(-1, keepdim=True))[..., 0]
    base = torch.where(before == -torch.inf, first, before)
    base = torch.where(base == -torch.inf, 0.0, base)
    bits = (log_scale - base[..., None]).masked_fill(hidden, 0.0) / LN2
    whole = bits.detach().floor()
    fraction = torch.exp2(bits - whole).masked_fill(hidden, 0.0)
    return Scales(base, fraction, whole.masked_fill(hidden, -torch.inf))


def references(scales: Scales) -> Iterator[Reference]:
    """The references of consecutive rows; nearly always there is one.

    Keys above a reference belong to rows of a later one, and have weight 0 here.
    """
    whole = scales.whole
    reference = torch.zeros_like(scales.base)
    start = torch.zeros_like(reference, dtype=torch.int64)
    while True:
        shift = whole - reference[..., None]
        above = shift > HEADROOM
        yield Reference(start, reference, scales.fraction * torch.exp2(shift.masked_fill(above, -torch.inf)))
        moved = above.any(-1)
        if not bool(moved.any()):
            return
        first = above.to(torch.uint8).argmax(-1)
        start = torch.where(moved, first, whole.shape[-1])
        reference = torch.where(moved, whole.gather(-1, first[..., None])[..., 0], reference)
