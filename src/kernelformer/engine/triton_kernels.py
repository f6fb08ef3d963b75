"""Triton kernels: features and sums in one pass, so that no N × M tensor reaches device memory.

A token of one head moves 4·D numbers (q, k, v, out). Features written and read again would move 4·M more, twice as
much again at M = 2·D. So each kernel evaluates the map's exponents on the tile it holds (``FusedForm``), and keeps the
running maximum of the keys' scales as one number: the sums decay by exp(old maximum - new).

The sums of one head are a row of W numbers: kv [BM, BV], k_sum [BM], and mass, 16 times. BD, BM, BV are D, M, Dv
padded to powers of two, M within each group of a normalised map. Arithmetic is float32, but the operands of products
are rounded: to bfloat16 for inputs of that, to tf32 for float16, whose range is too small for features. What is rounded
for a numerator is rounded for its denominator, too. Values must be finite.

``tables`` are omega [H, BD, BM] and what rounding it took away, the biases of keys and of queries [H, BM], shift and
tilt [H, BD], damping [H], root [H, BD, BD], what rounding it took away, and its bias [H, BD].
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["read_causal", "read_sums", "scan_sums", "sum_keys"]


@triton.jit
def _load_rows(base, stride, start, N, width, BN: tl.constexpr, BW: tl.constexpr):
    """Rows from ``start`` on. Offsets among them are 32 bits, which saves registers."""
    own, columns = tl.arange(0, BN), tl.arange(0, BW)
    inside = (start + own < N)[:, None] & (columns < width)[None, :]
    first = base + tl.cast(start, tl.int64) * stride
    return tl.load(first + own[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _product(a, b, WIDE: tl.constexpr):
    """a @ b; ``WIDE`` operands are float32 in place of float16. Three tf32 products have float32's digits."""
    return tl.dot(a, b, input_precision="tf32" if WIDE else "tf32x3")


@triton.jit
def _operand(x, like, WIDE: tl.constexpr):
    """x rounded for a product with what was read as ``like``."""
    if WIDE:
        return x.to(tl.float32)
    else:  # noqa: RET505 - a branch that is not taken is not compiled
        return x.to(like.dtype)


@triton.jit
def _project(x, matrix, low, BD: tl.constexpr, BW: tl.constexpr, SPLIT: tl.constexpr):
    """x @ matrix; in half precision the matrix comes in two parts, since exponents need the digits of float32."""
    at = tl.arange(0, BD)[:, None] * BW + tl.arange(0, BW)[None, :]
    y = tl.dot(x, tl.load(matrix + at), input_precision="tf32x3")
    if SPLIT:
        y = tl.dot(x, tl.load(low + at), y, input_precision="tf32x3")
    return y


@triton.jit
def _values(
    x, scaled, omega, low, bias, D, BN: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, GROUPS: tl.constexpr,
    NORMALISED: tl.constexpr, ELU: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Features [BN, BM] at most 1, and the exponent [BN] that was taken out of them."""
    if ELU:
        e = tl.where(scaled > 0, tl.log(1.0 + tl.maximum(scaled, 0.0)), scaled)
        e = tl.where((tl.arange(0, BD) < D)[None, :], e, float("-inf"))
    else:
        e = _project(x, omega, low, BD, BM, SPLIT) + tl.load(bias + tl.arange(0, BM))[None, :]
    if NORMALISED:
        parts = tl.reshape(e, (BN, GROUPS, BM // GROUPS))
        parts = tl.exp(parts - tl.max(parts, 2)[:, :, None])
        parts = parts / tl.sum(parts, 2)[:, :, None]
        return tl.reshape(parts, (BN, BM)), tl.zeros((BN,), tl.float32)
    else:  # noqa: RET505 - a branch that is not taken is not compiled
        top = tl.max(e, 1)
        return tl.exp(e - top[:, None]), top


@triton.jit
def _key_features(
    keys, stride, mask, start, h, N, D, scale, tables, constant, BN: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr,
    GROUPS: tl.constexpr, NORMALISED: tl.constexpr, ELU: tl.constexpr, HAS_ROOT: tl.constexpr, HAS_MASK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Features [BN, BM] of keys, and their log_scale [BN], -inf where there is no visible key."""
    seen = start + tl.arange(0, BN) < N
    columns = tl.arange(0, BD)
    x = _load_rows(keys, stride, start, N, D, BN, BD)
    if HAS_MASK:
        seen = seen & (tl.load(mask + start + tl.arange(0, BN), mask=seen, other=0) != 0)
        # Whatever lies under the mask, NaN too, never enters.
        x = tl.where(seen[:, None], x, 0.0).to(x.dtype)
    scaled = x.to(tl.float32) * scale - tl.load(tables[4] + h * BD + columns)[None, :]
    phi, log_scale = _values(
        x, scaled, tables[0] + h * BD * BM, tables[1] + h * BD * BM, tables[2] + h * BM, D, BN, BD, BM, GROUPS,
        NORMALISED, ELU, SPLIT,
    )  # fmt: skip
    if not NORMALISED:
        log_scale += tl.sum(scaled * tl.load(tables[5] + h * BD + columns)[None, :], 1) + constant
        log_scale -= tl.load(tables[6] + h) * tl.sum(scaled * scaled, 1)
    if HAS_ROOT:
        turned = _project(x, tables[7] + h * BD * BD, tables[8] + h * BD * BD, BD, BD, SPLIT)
        turned += tl.load(tables[9] + h * BD + columns)[None, :]
        log_scale -= tl.sum(turned * turned, 1)
    return phi, tl.where(seen, log_scale, float("-inf"))


@triton.jit
def _query_features(
    queries, stride, start, h, N, D, scale, tables, BN: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr,
    GROUPS: tl.constexpr, NORMALISED: tl.constexpr, ELU: tl.constexpr, SPLIT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Features [BN, BM] of queries as operands; their scale cancels in the ratio."""
    x = _load_rows(queries, stride, start, N, D, BN, BD)
    phi, _ = _values(
        x, x.to(tl.float32) * scale, tables[0] + h * BD * BM, tables[1] + h * BD * BM, tables[3] + h * BM, D, BN, BD,
        BM, GROUPS, NORMALISED, ELU, SPLIT,
    )  # fmt: skip
    return _operand(phi, x, WIDE)


@triton.jit
def _load_sums(base, top, BM: tl.constexpr, BV: tl.constexpr):
    """kv [BM, BV], k_sum [BM] and their maximum [1]."""
    kv = tl.load(base + tl.arange(0, BM)[:, None] * BV + tl.arange(0, BV)[None, :])
    return kv, tl.load(base + BM * BV + tl.arange(0, BM)), tl.load(top + tl.arange(0, 1))


@triton.jit
def _read(phi, kv, k_sum, smallest, WIDE: tl.constexpr):
    """phi @ kv and phi · k_sum."""
    # No entry of kv / unit exceeds the largest value, so that half precision can't overflow.
    unit = tl.maximum(tl.max(k_sum, 0), smallest)
    num = _product(phi, (kv / unit).to(phi.dtype), WIDE) * unit
    return num, tl.sum(phi.to(tl.float32) * k_sum[None, :], 1)


@triton.jit
def _write_rows(
    out, floored, start, N, DV, num, den, is_seen, smallest, BN: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """num / den, zeros where no key is seen or the denominator underflowed."""
    own, columns = tl.arange(0, BN), tl.arange(0, BV)
    is_good = den > smallest
    ratio = tl.where(is_good[:, None], num / tl.where(is_good, den, 1.0)[:, None], 0.0)
    inside = (start + own < N)[:, None] & (columns < DV)[None, :]
    first = out + tl.cast(start, tl.int64) * DV
    tl.store(first + own[:, None] * DV + columns[None, :], ratio.to(out.dtype.element_ty), mask=inside)
    tl.store(floored + start + own, (is_seen & (den <= smallest)).to(tl.int8), mask=start + own < N)


@triton.jit
def _fold(kv, k_sum, top, phi, log_scale, value, WIDE: tl.constexpr):
    """kv, k_sum and maximum with these keys; and the weights of the keys, and what is left of what was there."""
    new = tl.maximum(top, tl.max(log_scale, 0))
    finite = tl.where(new == float("-inf"), 0.0, new)
    left, weight = tl.exp(top - finite), tl.exp(log_scale - finite)
    keys = (phi * weight[:, None]).to(value.dtype)
    kv = kv * left[:, None] + _product(tl.trans(keys), value, WIDE)
    return kv, k_sum * left + tl.sum(keys.to(tl.float32), 0), new, weight, left


@triton.jit
def sum_keys(
    k, k_b, k_h, k_n, v, v_b, v_h, v_n, mask, sums, tops, heads, N, D, DV, segment, scale, tables, constant,
    BN: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr, W: tl.constexpr, GROUPS: tl.constexpr,
    NORMALISED: tl.constexpr, ELU: tl.constexpr, HAS_ROOT: tl.constexpr, HAS_MASK: tl.constexpr, SPLIT: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The sums of each segment of keys at its own maximum: a program a segment and head."""
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = row // heads, row % heads
    kv = tl.zeros((BM, BV), tl.float32)
    k_sum = tl.zeros((BM,), tl.float32)
    mass = tl.zeros((16,), tl.float32)
    top = tl.full((1,), float("-inf"), tl.float32)
    for start in range(part * segment, tl.minimum(part * segment + segment, N), BN):
        phi, log_scale = _key_features(
            k + b * k_b + h * k_h, k_n, mask + b * N, start, h, N, D, scale, tables, constant, BN, BD, BM, GROUPS,
            NORMALISED, ELU, HAS_ROOT, HAS_MASK, SPLIT,
        )  # fmt: skip
        value = _load_rows(v + b * v_b + h * v_h, v_n, start, N, DV, BN, BV)
        value = _operand(value, value, WIDE)
        kv, k_sum, top, weight, left = _fold(kv, k_sum, top, phi, log_scale, value, WIDE)
        mass = mass * left + tl.sum(weight, 0)
    at = row * tl.num_programs(0) + part
    base = sums + at * W
    tl.store(base + tl.arange(0, BM)[:, None] * BV + tl.arange(0, BV)[None, :], kv)
    tl.store(base + BM * BV + tl.arange(0, BM), k_sum)
    tl.store(base + BM * BV + BM + tl.arange(0, 16), mass)
    tl.store(tops + at + tl.arange(0, 1), top)


@triton.jit
def scan_sums(sums, tops, before, tops_before, segments, W, BW: tl.constexpr):
    """``before`` [rows, segments + 1, W], its first entry given: the sums before each segment, and after the last."""
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BW + tl.arange(0, BW)
    inside = columns < W
    current = tl.load(before + row * (segments + 1) * W + columns, mask=inside, other=0.0)
    top = tl.load(tops_before + row * (segments + 1) + tl.arange(0, 1))
    for part in range(segments):
        added = tl.load(sums + (row * segments + part) * W + columns, mask=inside, other=0.0)
        own = tl.load(tops + row * segments + part + tl.arange(0, 1))
        new = tl.maximum(top, own)
        finite = tl.where(new == float("-inf"), 0.0, new)
        current = current * tl.exp(top - finite) + added * tl.exp(own - finite)
        top = new
        at = row * (segments + 1) + part + 1
        tl.store(before + at * W + columns, current, mask=inside)
        # Every program of the row stores the same number.
        tl.store(tops_before + at + tl.arange(0, 1), top)


@triton.jit
def read_sums(
    q, q_b, q_h, q_n, sums, tops, out, floored, heads, groups, N, D, DV, scale, smallest, tables, BN: tl.constexpr,
    BD: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr, W: tl.constexpr, GROUPS: tl.constexpr,
    NORMALISED: tl.constexpr, ELU: tl.constexpr, SPLIT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What each query gets from the sums of all keys: a program a block of queries and head."""
    start, row = tl.program_id(0) * BN, tl.program_id(1).to(tl.int64)
    key_row, of_batch = row // groups, heads * groups
    phi = _query_features(
        q + row // of_batch * q_b + row % of_batch * q_h, q_n, start, key_row % heads, N, D, scale, tables, BN, BD, BM,
        GROUPS, NORMALISED, ELU, SPLIT, WIDE,
    )  # fmt: skip
    kv, k_sum, top = _load_sums(sums + key_row * W, tops + key_row, BM, BV)
    num, den = _read(phi, kv, k_sum, smallest, WIDE)
    _write_rows(
        out + row * N * DV, floored + row * N, start, N, DV, num, den, top > float("-inf"), smallest, BN, BV,
    )  # fmt: skip


@triton.jit
def read_causal(
    q, q_b, q_h, q_n, k, k_b, k_h, k_n, v, v_b, v_h, v_n, mask, before, tops_before, out, floored, heads, groups, N, D,
    DV, segment, scale, smallest, tables, constant, BN: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr,
    BV: tl.constexpr, W: tl.constexpr, GROUPS: tl.constexpr, NORMALISED: tl.constexpr, ELU: tl.constexpr,
    HAS_ROOT: tl.constexpr, HAS_MASK: tl.constexpr, SPLIT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Causal rows of one segment, chunk by chunk from the sums before it: a program a segment and head of queries."""
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    key_row = row // groups
    b, h = key_row // heads, key_row % heads
    at = key_row * (tl.num_programs(0) + 1) + part
    kv, k_sum, top = _load_sums(before + at * W, tops_before + at, BM, BV)
    for start in range(part * segment, tl.minimum(part * segment + segment, N), BN):
        query = _query_features(
            q + b * q_b + row % (heads * groups) * q_h, q_n, start, h, N, D, scale, tables, BN, BD, BM, GROUPS,
            NORMALISED, ELU, SPLIT, WIDE,
        )  # fmt: skip
        num, den = _read(query, kv, k_sum, smallest, WIDE)
        phi, log_scale = _key_features(
            k + b * k_b + h * k_h, k_n, mask + b * N, start, h, N, D, scale, tables, constant, BN, BD, BM, GROUPS,
            NORMALISED, ELU, HAS_ROOT, HAS_MASK, SPLIT,
        )  # fmt: skip
        value = _load_rows(v + b * v_b + h * v_h, v_n, start, N, DV, BN, BV)
        value = _operand(value, value, WIDE)
        later = tl.arange(0, BN)[None, :] > tl.arange(0, BN)[:, None]
        logs = tl.where(later, float("-inf"), log_scale[None, :])
        # The running maximum of each row: no later key enters, so none changes a bit of it.
        tops = tl.maximum(tl.max(logs, 1), top)
        finite = tl.where(tops == float("-inf"), 0.0, tops)
        kernel = _product(query, tl.trans(phi.to(value.dtype)), WIDE)
        kernel = (kernel * tl.exp(logs - finite[:, None])).to(value.dtype)
        decay = tl.exp(top - finite)
        num = num * decay[:, None] + _product(kernel, value, WIDE)
        den = tl.sum(kernel.to(tl.float32), 1) + den * decay
        _write_rows(
            out + row * N * DV, floored + row * N, start, N, DV, num, den, tops > float("-inf"), smallest, BN, BV,
        )  # fmt: skip
        kv, k_sum, top, _, _ = _fold(kv, k_sum, top, phi, log_scale, value, WIDE)
