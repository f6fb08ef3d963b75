"""One thing to measure as plain data, so that another process can build it again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelformer.attention import KernelAttention
from kernelformer.bench.clock import Call
from kernelformer.bench.rivals import Attend, find_rival
from kernelformer.engine import State
from kernelformer.feature_maps import build_feature_map, width_for
from kernelformer.features import FeatureMap

__all__ = ["DTYPES", "Case"]

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Case:
    """Attention of one form by one method, at batch size 1 and any length.

    Attributes:
        form: of ``FORMS``.
        method: a name of ``FEATURE_MAPS``, "module:Class", or one of ``RIVALS`` where ``is_rival``.
        num_features: M of the kernel, and of those rivals that have one.
        seed: of the map and of q, k, v, which are standard normal.
    """

    form: str
    method: str
    is_rival: bool = False
    num_heads: int = 8
    head_dim: int = 64
    num_features: int = 128
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0

    def feature_map(self) -> FeatureMap:
        """The map, drawn from the seed."""
        width = width_for(self.method, self.num_features)
        return build_feature_map(self.method, self.head_dim, self.num_heads, width, seed=self.seed).to(self.device)

    def rival(self, name: str, num_features: int) -> Case:
        """The same with a rival in place of the kernel."""
        return replace(self, method=name, is_rival=True, num_features=num_features)

    def draw(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v [1, H, N, D]."""
        generator = torch.Generator(device="cpu").manual_seed(self.seed)
        shape = (3, 1, self.num_heads, length, self.head_dim)
        q, k, v = torch.randn(shape, generator=generator, device="cpu").to(self.device, DTYPES[self.dtype])
        return q, k, v

    def prepare(self, length: int) -> Call | str:
        """What to call, or why there is nothing to call."""
        attend: Attend | str
        if not self.is_rival:
            attend = KernelAttention(self.feature_map(), self.form != "bidirectional", below_crossover="exact-kernel")
        elif self.form == "step" and self.method != "sdpa":
            attend = f"{self.method} has no step to measure"
        else:
            causal = self.form != "bidirectional"
            attend = find_rival(self.method, self.head_dim, self.num_features, causal=causal, device=self.device)
        return attend if isinstance(attend, str) else _call(self.form, attend, *self.draw(length))

    def kept_mib(self, length: int) -> float:
        """MiB that must stay in memory from step to step: the state, or softmax's cache of keys and values."""
        q, k, v = self.draw(length if self.is_rival else 1)
        if self.is_rival:
            return (k.nbytes + v.nbytes) / 2**20
        with torch.no_grad():
            _, state = KernelAttention(self.feature_map(), True, below_crossover="ignore").stream(q, k, v)
        assert isinstance(state, State)
        return sum(x.nbytes for x in state) / 2**20


def _call(form: str, attend: Attend, q: Tensor, k: Tensor, v: Tensor) -> Call:
    if form == "training":
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        weights = [p for p in attend.parameters() if p.requires_grad] if isinstance(attend, nn.Module) else []
        return torch.enable_grad()(lambda: torch.autograd.grad(attend(*leaves).sum(), [*leaves, *weights]))
    if form != "step":
        return torch.no_grad()(lambda: attend(q, k, v))
    query, key, value = (x[:, :, -1:].contiguous() for x in (q, k, v))
    if not isinstance(attend, KernelAttention):
        # Softmax of one query over a cache that lies there already: nothing is counted for appending to it.
        return torch.no_grad()(lambda: F.scaled_dot_product_attention(query, k, v))
    attention = attend
    with torch.no_grad():
        _, state = attention.stream(q, k, v)
    return torch.no_grad()(lambda: attention.stream(query, key, value, state))
