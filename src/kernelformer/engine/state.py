"""The state of causal attention, and the one place where a numerator meets its denominator."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Attended", "State", "divisor", "empty_state", "normalise", "smallest_denominator"]


class State(NamedTuple):
    """All that causal attention remembers; its size does not depend on the length seen.

    Every sum is scaled by exp(-log_max), so that nothing overflows: with weights
    w_j = exp(log_scale_j - log_max), kv = Σ w_j phi_j v_jᵀ, k_sum = Σ w_j phi_j, mass = Σ w_j.

    Shape:
        kv: [B, H, M, Dv]; k_sum: [B, H, M]; mass, log_max: [B, H]; length: [] int64, tokens seen.
        The sums are float32 for half-precision and float32 inputs, float64 for float64.
    """

    kv: Tensor
    k_sum: Tensor
    mass: Tensor
    log_max: Tensor
    length: Tensor


class Attended(NamedTuple):
    """What the engine returns: out [B, Hq, N, Dv], and which rows met the floor [B, Hq, N]."""

    out: Tensor
    floored: Tensor


def empty_state(
    batch: int, num_heads: int, num_features: int, value_dim: int, dtype: torch.dtype, device: torch.device
) -> State:
    """The state before the first token."""
    zeros = torch.zeros(batch, num_heads, num_features, value_dim, dtype=dtype, device=device)
    rows = zeros.new_zeros(batch, num_heads)
    return State(
        zeros,
        zeros.new_zeros(batch, num_heads, num_features),
        rows,
        torch.full_like(rows, -torch.inf),
        torch.zeros((), dtype=torch.int64, device=device),
    )


def normalise(num: Tensor, den: Tensor, mass: Tensor, floor: float) -> Attended:
    """num / max(den, floor · mass), zeros where no key is visible.

    The floor is relative to the key mass Σ_j exp(log_scale_j), hence free of any scale; with
    |phi_q·phi_k| <= 1 it bounds ‖out‖ by max‖v‖ / floor. A positive map has floor 0: there only a
    denominator that underflowed counts as floored, and its row is zero, with zero gradients. It
    underflows above the smallest number, where its gradient 1 / den would overflow.
    """
    below, floored = divisor(den, mass, floor)
    return Attended(num / below[..., None], floored)


def divisor(den: Tensor, mass: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """What stands below the fraction, infinite for a row of zeros; and which rows met the floor."""
    if floor > 0:
        bound = floor * mass
        floored = (den < bound) & (mass > 0)
        return torch.where(mass > 0, torch.where(floored, bound, den), torch.inf), floored
    smallest = smallest_denominator(den.dtype)
    floored = (den <= smallest) & (mass > 0)
    return torch.where(den > smallest, den, torch.inf), floored


def smallest_denominator(dtype: torch.dtype) -> float:
    """A positive denominator up to this has underflowed."""
    return 1e8 * torch.finfo(dtype).tiny
