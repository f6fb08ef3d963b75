"""The shape of one attention layer as plain data, so that another process can build it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelformer.attention import KernelAttention
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import build_feature_map
from kernelformer.features import FeatureMap

__all__ = ["AttentionSpec", "draw_qkv", "draw_tokens"]


@dataclass(frozen=True)
class AttentionSpec:
    """A bidirectional attention layer with as many key heads as query heads.

    Attributes:
        kernel: a name of ``FEATURE_MAPS`` or "module:Class".
        num_features: M; None is the map's own default.
        options: further arguments of the map's constructor, plain values.
    """

    kernel: str
    head_dim: int
    num_heads: int
    num_features: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> AttentionSpec:
        """The first converted layer of ``model.config.kernelized``.

        Raises:
            KernelformerError: no layer is converted.
        """
        for layer in record["layers"]:
            if layer["converted"]:
                return cls(
                    record["kernel"], layer["head_dim"], layer["num_heads"], record["num_features"], record["options"]
                )
        raise KernelformerError("the model has no converted attention layer to measure")

    def build(self, seed: int) -> KernelAttention:
        """The layer, its map drawn from ``seed``."""
        return KernelAttention(self.feature_map(seed), below_crossover="exact-kernel")

    def feature_map(self, seed: int) -> FeatureMap:
        """The map, drawn from ``seed``."""
        return build_feature_map(
            self.kernel, self.head_dim, self.num_heads, self.num_features, options=self.options, seed=seed
        )


def draw_qkv(spec: AttentionSpec, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [1, H, N, D], standard normal."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    q, k, v = torch.randn(3, 1, spec.num_heads, length, spec.head_dim, generator=generator, device="cpu")
    return q, k, v


def draw_tokens(vocab_size: int, length: int, seed: int) -> Tensor:
    """Token ids [1, N], uniform over the vocabulary."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randint(vocab_size, (1, length), generator=generator, device="cpu")
