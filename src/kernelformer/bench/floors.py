"""What no method with M features can beat: its operations at the rate of matrix products, its bytes at a copy's."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch

from kernelformer.bench.clock import Call, median_seconds
from kernelformer.features import FeatureMap, ProjectedFeatureMap

__all__ = ["FORMS", "Rates", "floor_mib", "floor_seconds", "measure_rates"]

FORMS: Final = ("bidirectional", "causal", "training", "step")
"""Forward without gradients; the same, causal; causal forward and backward; one token after a state."""

_CHUNK: Final = 64


class Rates(NamedTuple):
    """Floating-point operations and bytes (read and written) a second."""

    products: float
    copies: float


def measure_rates(dtype: torch.dtype, *, seconds: float = 1.0, device: str = "cpu") -> Rates:
    """The best rates of matrix products, large and in blocks as attention has them, and of a copy beyond the cache."""
    generator = torch.Generator(device="cpu").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cpu").to(device, dtype)

    def rate(work: int, call: Call) -> float:
        return work / median_seconds({"": call}, seconds / 4, device)[""]

    large = 1024 if device == "cpu" else 8192
    products = []
    for left, right in (((8, 256, 64), (8, 64, 128)), ((8, 256, 128), (8, 128, 64)), ((1, large, large),) * 2):
        a, b = draw(*left), draw(*right)
        products.append(rate(2 * left[0] * left[1] * left[2] * right[2], lambda a=a, b=b: torch.bmm(a, b)))  # type: ignore[misc]
    source = torch.zeros(1 << (24 if device == "cpu" else 29), dtype=dtype, device=device)
    target = torch.empty_like(source)
    return Rates(max(products), rate(2 * source.nbytes, lambda: target.copy_(source)))


def floor_seconds(
    form: str, feature_map: FeatureMap, length: int, value_dim: int, rates: Rates, *, itemsize: int = 4
) -> float:
    """The larger of the two floors at batch size 1, for float32 or the item size given.

    Operations: features of queries and keys, update and read of the state; causal forms add products in chunks of
    64; training counts a backward pass as two forward passes. Bytes: inputs once, outputs once; a step reads and writes
    its float32 state.
    """
    heads, width, dim = feature_map.num_heads, feature_map.num_features, feature_map.head_dim
    projections = feature_map.omega.shape[-1] if isinstance(feature_map, ProjectedFeatureMap) else 0
    operations = 2 * heads * (2 * dim * projections + 2 * width * value_dim)
    if form in ("causal", "training"):
        operations += 2 * heads * _CHUNK * (width + value_dim)
    moved = 2 * (dim + value_dim) * heads * itemsize
    if form == "step":
        return max(operations / rates.products, (moved + 2 * 4 * heads * width * value_dim) / rates.copies)
    passes = 3 if form == "training" else 1
    return passes * length * max(operations / rates.products, moved / rates.copies)


def floor_mib(form: str, feature_map: FeatureMap, length: int, value_dim: int, *, itemsize: int = 4) -> float:
    """MiB that any method must allocate: the output, in training the gradients of q, k and v, too; a step's state."""
    heads, dim = feature_map.num_heads, feature_map.head_dim
    if form == "step":
        return 4 * heads * feature_map.num_features * value_dim / 2**20
    width = value_dim + (2 * dim + value_dim if form == "training" else 0)
    return heads * length * width * itemsize / 2**20
