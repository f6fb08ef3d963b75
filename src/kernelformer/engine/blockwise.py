"""Whole sequences, block by block: no features of the whole sequence ever exist.

A block is small enough for the cache, where elementwise work is several times cheaper than in memory.
Training keeps the state before each block and recomputes the features of a block in the backward pass
(``training``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kernelformer.engine.bidirectional import fold_keys, read_state
from kernelformer.engine.causal import CHUNK_SIZE, attend_causal
from kernelformer.engine.state import Attended, State, empty_state
from kernelformer.features import FeatureMap, Features

__all__ = [
    "Sequence",
    "block_length",
    "blocks",
    "cut_all",
    "empty_sums",
    "fold_sequence",
    "run_bidirectional",
    "run_causal",
]

# Features of a block, over all heads, per thread: 1 MiB in float32, about one core's second cache.
BLOCK_ELEMENTS = 1 << 18
# Calls of half precision cost more beside their arithmetic.
HALF_CHUNK_SIZE = 64
# More than all temporaries of a block; glibc does not keep more than 32 MiB.
_KEPT_BYTES = (1 << 25) - (1 << 16)


@functools.cache
def has_fast_half(dtype: torch.dtype) -> bool:
    """Whether matrix products of this dtype are faster than those of float32 on this CPU."""
    if dtype != torch.bfloat16:
        return False
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


class Sequence(NamedTuple):
    """Queries, keys and values without features; see ``KernelAttention`` for shapes."""

    q: Tensor
    k: Tensor
    v: Tensor
    key_mask: Tensor | None = None
    scale: float | None = None
    positions_q: Tensor | None = None
    positions_k: Tensor | None = None

    def cut(self, rows: slice) -> Sequence:
        """The tokens ``rows`` alone."""
        mask = None if self.key_mask is None else self.key_mask[:, rows]
        q, k, v = self.q[:, :, rows], self.k[:, :, rows], self.v[:, :, rows]
        return Sequence(q, k, v, mask, self.scale, _at(self.positions_q, rows), _at(self.positions_k, rows))

    def products(self) -> torch.dtype | None:
        """The dtype for factors of matrix products: that of the values, where half precision is fast."""
        is_half = self.v.device.type == "cpu" and has_fast_half(self.v.dtype)
        return self.v.dtype if is_half else None

    def queries(self, feature_map: FeatureMap) -> Features:
        """Features of the queries."""
        return feature_map.map_q(self.q, self.scale, self.positions_q)

    def keys(self, feature_map: FeatureMap, products: torch.dtype | None = None) -> tuple[Features, Tensor]:
        """Features of the keys, and the values in the dtype of products, by default that of the features."""
        features = feature_map.map_k(self.k, self.scale, self.key_mask, self.positions_k)
        return features, self.v.to(features.values.dtype if products is None else products)


def block_length(x: Tensor, feature_map: FeatureMap) -> int:
    """Tokens of x [B, H, N, D] per block: a multiple of the chunk size."""
    per_token = x.shape[0] * x.shape[1] * max(feature_map.num_features, x.shape[-1])
    elements = BLOCK_ELEMENTS * torch.get_num_threads()
    return max(elements // max(per_token, 1) // CHUNK_SIZE, 1) * CHUNK_SIZE


def blocks(x: Tensor, feature_map: FeatureMap) -> Iterator[slice]:
    """The blocks of x [B, H, N, D], in order: of whole chunks, but for one at the end."""
    length, size = x.shape[2], block_length(x, feature_map)
    whole = length // CHUNK_SIZE * CHUNK_SIZE
    for start in range(0, whole, size):
        yield slice(start, min(start + size, whole))
    if whole < length:
        yield slice(whole, length)


def cut_all(sequence: Sequence, rows: list[slice], fields: tuple[str, ...]) -> Iterator[Sequence]:
    """The blocks ``rows`` of a sequence, for autograd: ``fields`` of q, k and v are cut once.

    The gradient of a slice is a tensor of the whole length, zero elsewhere; one a block would cost N² in all.
    """
    sizes = [each.stop - each.start for each in rows]
    parts = {name: getattr(sequence, name).split(sizes, dim=2) for name in fields}
    for number, each in enumerate(rows):
        yield sequence.cut(each)._replace(**{name: part[number] for name, part in parts.items()})


def run_causal(
    feature_map: FeatureMap, sequence: Sequence, state: State, before: list[State] | None = None
) -> tuple[Attended, State]:
    """Causal attention after ``state``; ``before`` collects the state before each block."""
    attended = _empty_output(sequence)
    products = sequence.products()
    for rows in blocks(sequence.k, feature_map):
        if before is not None:
            before.append(state)
        block = sequence.cut(rows)
        k, v = block.keys(feature_map, products)
        part, state = attend_causal(
            block.queries(feature_map),
            k,
            v,
            floor=feature_map.floor,
            state=state,
            chunk_size=None if products is None else HALF_CHUNK_SIZE,
            products=products,
        )
        _write(attended, rows, part)
    return attended, state


def fold_sequence(feature_map: FeatureMap, sequence: Sequence, state: State | None = None) -> State:
    """The state after all keys and values of the sequence."""
    state = empty_sums(feature_map, sequence) if state is None else state
    products = sequence.products()
    for rows in blocks(sequence.k, feature_map):
        state = fold_keys(*sequence.cut(rows).keys(feature_map, products), state, products=products)
    return state


def run_bidirectional(feature_map: FeatureMap, sequence: Sequence, state: State) -> tuple[Attended, State]:
    """Bidirectional attention to the keys in ``state`` and those of the sequence, and the state of all."""
    attended = _empty_output(sequence)
    state = fold_sequence(feature_map, sequence, state)
    for rows in blocks(sequence.q, feature_map):
        queries = sequence.cut(rows).queries(feature_map)
        part = read_state(queries, state, floor=feature_map.floor, products=sequence.products())
        _write(attended, rows, part)
    return attended, state


def empty_sums(feature_map: FeatureMap, sequence: Sequence) -> State:
    """The state before the first token of the sequence."""
    k, v = sequence.k, sequence.v
    dtype = torch.float64 if k.dtype == torch.float64 else torch.float32
    return empty_state(k.shape[0], k.shape[1], feature_map.num_features, v.shape[-1], dtype, v.device)


def keep_memory() -> None:
    """Ask the allocator to keep what is freed between blocks, and not hand it back to the system.

    Memory fresh from the system costs a fault a page, up to twenty times the elementwise work of a block. glibc keeps
    as much as the largest chunk that was ever mapped and freed: here one that nobody touches, at the cost of two
    system calls. Other allocators are left as they are.
    """
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)


def _empty_output(sequence: Sequence) -> Attended:
    keep_memory()
    shape = sequence.q.shape[:3]
    out = sequence.v.new_empty(*shape, sequence.v.shape[-1])
    return Attended(out, torch.empty(shape, dtype=torch.bool, device=out.device))


def _write(attended: Attended, rows: slice, part: Attended) -> None:
    attended.out[:, :, rows] = part.out
    attended.floored[:, :, rows] = part.floored


def _at(positions: Tensor | None, rows: slice) -> Tensor | None:
    return None if positions is None else positions[rows]
