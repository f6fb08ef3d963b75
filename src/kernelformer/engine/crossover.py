"""Where exact attention, and the quadratic form of a kernel, are faster than its linear form: a model fitted to times.

Work is counted in multiplications with addition, at the rate of matrix products. What is no product is put into the
same unit: calls cost the same at any size, and more of it the more threads wait. The constants were fitted to medians
on 2 threads of one CPU (float32; D 32, 64 and 128; 1 to 16 heads; 32 to 256 features; Hedgehog and FAVOR+). Lengths
come out within 35 % of the measured ones, which are those it was fitted to; maps whose features cost more
(Flexformer_n) cross at up to twice the length.
"""

from __future__ import annotations

import math

import torch

__all__ = ["crossover_length", "is_quadratic_faster"]

# Per thread: calls of the linear form beyond those of the quadratic one; beyond those of exact attention, not causal
# and causal; and those that grow with a causal length, per token.
_QUADRATIC_CALLS = 7e6
_EXACT_CALLS = (27e6, 12e6)
_CAUSAL_CALLS = 3e4
# An exponential, and the elementwise work of a feature, not causal and causal.
_EXPONENTIAL = 64.0
_FEATURE = (200.0, 240.0)


def is_quadratic_faster(queries: int, keys: int, heads: int, num_features: int, value_dim: int) -> bool:
    """Whether N × S weights cost less than sums over M features; ``heads`` is that of keys times the batch size."""
    quadratic = heads * queries * keys * (num_features + value_dim)
    linear = heads * (queries + keys) * num_features * value_dim
    return quadratic < linear + _QUADRATIC_CALLS * torch.get_num_threads()


def crossover_length(heads: int, head_dim: int, num_features: int, *, causal: bool) -> int:
    """The length from which a kernel of M features is faster than exact attention, about.

    It solves heads · (2 D + e) N² = heads · M (4 D + f) N + calls, the left side halved if causal.
    """
    threads = torch.get_num_threads()
    square = heads * (2 * head_dim + _EXPONENTIAL) * (0.5 if causal else 1.0)
    slope = heads * num_features * (4 * head_dim + _FEATURE[causal]) + causal * _CAUSAL_CALLS * threads
    calls = _EXACT_CALLS[causal] * threads
    return round((slope + math.sqrt(slope**2 + 4 * square * calls)) / (2 * square))
