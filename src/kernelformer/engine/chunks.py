"""Whole chunks of a block, forward and backward, without autograd: sums are updated in place.

The same sums as autograd's form in ``causal``, and their derivatives, written out. With S = tril(Q Kᵀ) of one chunk,
W = w V the weighted values, and kv, k_sum of all chunks before it:

    num = S W + Q kv,   den = S w + Q k_sum,   kv += Kᵀ W,   k_sum += Kᵀ w
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ChunkGrads", "Chunks", "Sums", "chunks_backward", "chunks_forward", "cut_chunks"]

# kv, k_sum, mass
Sums = tuple[Tensor, Tensor, Tensor]


class ChunkGrads(NamedTuple):
    """Gradients for features of queries and keys, the keys' weights, values, and the sums before the block."""

    q: Tensor
    k: Tensor
    weights: Tensor
    v: Tensor
    sums: Sums


class Chunks(NamedTuple):
    """A block cut into chunks of C tokens, b = B H.

    Factors of half precision are those of the numerator alone: w v, the kernel, and ``half``, q and k once more.
    What is summed up in k_sum and mass is never rounded.

    Shape:
        q [b, chunks, G C, M], k [b, chunks, C, M], w [b, chunks, C], v and w v [b, chunks, C, Dv],
        kernel S [b, chunks, G C, C].
    """

    q: Tensor
    k: Tensor
    w: Tensor
    v: Tensor
    weighted: Tensor
    kernel: Tensor
    half: tuple[Tensor, Tensor] | None
    groups: int

    def k_sums(self, before: Tensor) -> Tensor:
        """k_sum before every chunk, and after all, [b, chunks + 1, M]; ``before`` [B, H, M]."""
        added = torch.matmul(self.w[:, :, None], self.k)[:, :, 0]
        return torch.cat([before.flatten(0, 1)[:, None], added], dim=1).cumsum(1)

    def denominators(self, before: Sums) -> Tensor:
        """den of all rows, [b, chunks, G C]."""
        weights = self.w if _is_finite(self.weighted) else torch.where(self.w.isfinite(), self.w, 0.0)
        inside = _column(self.kernel.to(weights.dtype), weights)
        inside += _column(self.q, self.k_sums(before[1])[:, :-1])
        return inside

    def masses(self, before: Sums) -> Tensor:
        """mass of all rows, [B, H, 1, N]."""
        weights = self.w.reshape(*before[2].shape, -1)
        return (weights.cumsum(-1) + before[2][..., None])[:, :, None]

    def in_order(self, rows: Tensor, before: Sums) -> Tensor:
        """[b, chunks, G C, ...] as [B, H, G, N, ...]."""
        rows = torch.transpose(rows.unflatten(2, (self.groups, -1)), 1, 2)
        length = self.w.shape[1] * self.w.shape[2]
        shape = (*before[2].shape, self.groups, length, *rows.shape[4:])
        ordered: Tensor = rows.reshape(shape)
        return ordered

    def by_chunk(self, rows: Tensor) -> Tensor:
        """[B, H, G, N, ...] as [b, chunks, G C, ...]."""
        cut: Tensor = rows.flatten(0, 1).unflatten(2, self.w.shape[1:]).transpose(1, 2).flatten(2, 3)
        return cut


def cut_chunks(
    q: Tensor, keys: Tensor, weights: Tensor, v: Tensor, chunk_size: int, products: torch.dtype | None = None
) -> Chunks:
    """Cut q [B, Hq, N, M], keys [B, H, N, M], their weights [B, H, N] and v [B, H, N, Dv]; N a multiple of the size.

    ``products`` is the dtype of the factors of the numerator, None that of the features.
    """
    batch, heads, length, width = keys.shape
    chunks, groups = length // chunk_size, q.shape[1] // heads
    rows = q.reshape(batch * heads, groups, chunks, chunk_size, width).transpose(1, 2).flatten(2, 3)

    def cut(x: Tensor) -> Tensor:
        return x.reshape(batch * heads, chunks, chunk_size, *x.shape[3:])

    k, w, v = cut(keys), cut(weights), cut(v)
    half = None if products is None else (rows.to(products), k.to(products))
    left, right = (rows, k) if half is None else half
    kernel = torch.bmm(left.flatten(0, 1), right.flatten(0, 1).transpose(1, 2))
    kernel.view(-1, groups, chunk_size, chunk_size).tril_()
    kernel = kernel.view(*rows.shape[:3], chunk_size)
    return Chunks(rows, k, w, v, (v * w[..., None]).to(left.dtype), kernel, half, groups)


def chunks_forward(block: Chunks, before: Sums) -> tuple[Sums, Sums]:
    """Numerator, denominator and mass of all rows, and the sums after them.

    Shape:
        Rows [B, H, G, N, ...], the mass [B, H, 1, N]; sums as in ``State``.
    """
    seen, spoilt = _finite(block)
    num, kv = (_sweep if block.half is None else _sweep_half)(block, seen, before[0].flatten(0, 1))
    den = block.denominators(before)
    if spoilt is not None:
        num += spoilt
        den += spoilt.sum(-1)
    mass = block.masses(before)
    after = kv.view_as(before[0]), block.k_sums(before[1])[:, -1].view_as(before[1]), mass[:, :, 0, -1]
    return (block.in_order(num, before), block.in_order(den, before), mass), after


def _sweep(block: Chunks, seen: Tensor, kv: Tensor) -> tuple[Tensor, Tensor]:
    """Numerators [b, chunks, G C, Dv], and kv [b, M, Dv] after the block: chunk by chunk, in place."""
    kv = kv.clone()
    num = _room(block.q, block.v.shape[-1])
    for chunk in range(len(num)):
        torch.bmm(block.kernel[:, chunk], seen[:, chunk], out=num[chunk])
        num[chunk].baddbmm_(block.q[:, chunk], kv)
        kv.baddbmm_(block.k[:, chunk].transpose(1, 2), block.weighted[:, chunk])
    return num.transpose(0, 1), kv


def _sweep_half(block: Chunks, seen: Tensor, kv: Tensor) -> tuple[Tensor, Tensor]:
    """The same from factors of half precision, summed up in that of kv: a call costs more there than its arithmetic."""
    assert block.half is not None
    q, k = block.half
    added = torch.matmul(k.transpose(2, 3), block.weighted)
    before = torch.empty_like(added)
    for chunk in range(added.shape[1]):
        before[:, chunk] = kv
        kv = kv + added[:, chunk]
    inside = torch.matmul(block.kernel, seen)
    num = torch.baddbmm(inside.flatten(0, 1), q.flatten(0, 1), before.flatten(0, 1))
    return num.view_as(inside), kv


def chunks_backward(block: Chunks, before: Sums, d_rows: Sums, d_after: Sums) -> ChunkGrads:
    """Gradients of :func:`chunks_forward`, given those of its rows and of the sums after them."""
    d_num, d_den, d_mass = block.by_chunk(d_rows[0]), block.by_chunk(d_rows[1]), d_rows[2].sum(2)
    d_q, d_k, d_weighted, d_kv = _sweep_back(block, d_num, d_den, before[0], d_after[0])
    added = torch.matmul(d_den[:, :, None], block.q)[:, :, 0]
    d_k_sum = torch.cat([added, d_after[1].flatten(0, 1)[:, None]], dim=1).flip(1).cumsum(1).flip(1)
    d_q.addcmul_(d_den[..., None], block.k_sums(before[1])[:, :-1, None])
    d_k.addcmul_(block.w[..., None], d_k_sum[:, 1:, None])
    d_w = (d_weighted * block.v).sum(-1) + torch.matmul(d_den[:, :, None], block.kernel)[:, :, 0]
    d_w += _column(block.k, d_k_sum[:, 1:])
    d_mass[..., -1] += d_after[2]
    heads = before[2].shape

    def in_order(x: Tensor) -> Tensor:
        return x.reshape([*heads, -1, *x.shape[3:]])

    return ChunkGrads(
        block.in_order(d_q, before).flatten(1, 2),
        in_order(d_k),
        in_order(d_w) + d_mass.flip(-1).cumsum(-1).flip(-1),
        in_order(d_weighted * block.w[..., None]),
        (d_kv.unflatten(0, heads), d_k_sum[:, 0].unflatten(0, heads), d_mass.sum(-1)),
    )


def _sweep_back(
    block: Chunks, d_num: Tensor, d_den: Tensor, before: Tensor, d_after: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients for Q, K and W, but for what comes through the denominator, and for kv before the block."""
    size = block.w.shape[2]
    d_kernel = torch.matmul(d_num, block.weighted.transpose(2, 3)).addcmul_(d_den[..., None], block.w[:, :, None])
    d_kernel.view(-1, size, size).tril_()
    kv, d_kv = _kv_before(block, before), d_after.flatten(0, 1).clone()
    width, value_dim = kv.shape[2:]
    d_q, d_k, d_weighted = _room(block.q, width), _room(block.k, width), _room(block.v, value_dim)
    for chunk in range(len(kv) - 1, -1, -1):
        rows, keys, d_rows = block.q[:, chunk], block.k[:, chunk], d_num[:, chunk]
        torch.bmm(d_kernel[:, chunk], keys, out=d_q[chunk])
        d_q[chunk].baddbmm_(d_rows, kv[chunk].transpose(1, 2))
        torch.bmm(d_kernel[:, chunk].transpose(1, 2), rows, out=d_k[chunk])
        d_k[chunk].baddbmm_(block.weighted[:, chunk], d_kv.transpose(1, 2))
        torch.bmm(block.kernel[:, chunk].transpose(1, 2), d_rows, out=d_weighted[chunk])
        d_weighted[chunk].baddbmm_(keys, d_kv)
        d_kv.baddbmm_(rows.transpose(1, 2), d_rows)
    return d_q.transpose(0, 1), d_k.transpose(0, 1), d_weighted.transpose(0, 1), d_kv


def _kv_before(block: Chunks, before: Tensor) -> Tensor:
    """kv before every chunk, [chunks, b, M, Dv]."""
    kv = before.new_empty(block.k.shape[1], block.k.shape[0], *before.shape[2:])
    kv[0] = before.flatten(0, 1)
    for chunk in range(1, len(kv)):
        keys, weighted = block.k[:, chunk - 1].transpose(1, 2), block.weighted[:, chunk - 1]
        torch.baddbmm(kv[chunk - 1], keys, weighted, out=kv[chunk])
    return kv


def _room(like: Tensor, width: int) -> Tensor:
    """Room for [b, chunks, rows, width], a chunk a piece: products are written in place to contiguous memory alone."""
    return like.new_empty(like.shape[1], like.shape[0], like.shape[2], width)


def _finite(block: Chunks) -> tuple[Tensor, Tensor | None]:
    """W without what is not finite, so that 0 · NaN of keys to come is 0; and what that hides from each row."""
    if _is_finite(block.weighted):
        return block.weighted, None
    finite = block.weighted.isfinite()
    hidden = torch.where(finite, 0.0, block.weighted)
    return torch.where(finite, block.weighted, 0.0), hidden.cumsum(2).repeat(1, 1, block.groups, 1)


def _is_finite(x: Tensor) -> bool:
    return bool(x.sum().isfinite())


def _column(rows: Tensor, column: Tensor) -> Tensor:
    """rows @ column for single columns; as a row, the product takes a fraction of the time."""
    product: Tensor = torch.matmul(column[:, :, None], rows.transpose(2, 3))[:, :, 0]
    return product
