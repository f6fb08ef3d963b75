"""Attention by the fused Triton kernels, for maps with a ``FusedForm``; gradients by recomputation in torch.

Bidirectional: a pass over keys sums segments side by side, a pass over queries reads the total. Causal: the same first
pass, a scan over segments, and a pass over the rows of each segment from the sums before it: keys and values are
read twice, and what is kept between the passes is one state a segment.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernelformer.engine import triton_kernels as kernels
from kernelformer.engine.blockwise import Sequence, empty_sums
from kernelformer.engine.fused import padded
from kernelformer.engine.state import Attended, State, smallest_denominator
from kernelformer.engine.training import train_bidirectional, train_causal
from kernelformer.features import FeatureMap, FusedForm, softmax_scale

__all__ = ["attend_fused"]

BLOCK, BLOCK_FLOAT = 64, 32
# Compiled for compute capability 9.0 at M = 128, 64 rows at once spill 1.8 KB of registers a thread, 32 spill 0.2.
CAUSAL_BLOCK = 32
# Programs enough for several on each of a large device's processors.
PROGRAMS = 512
SCAN_BLOCK = 1024
SMALLEST = smallest_denominator(torch.float32)


def attend_fused(
    feature_map: FeatureMap, sequence: Sequence, *, causal: bool, state: State | None, needs_grad: bool
) -> tuple[Attended, State | None]:
    """Attention of a request for which ``why_not_fused`` is None; the state after the sequence if causal."""
    if causal and state is None:
        state = empty_sums(feature_map, sequence)
    if not needs_grad:
        return _run(feature_map, sequence, state if causal else None)
    out, floored, *after = _Recomputed.apply(  # type: ignore[no-untyped-call]
        feature_map, sequence, causal, *sequence[:3], *(state if causal and state else ()), *feature_map.parameters()
    )
    return Attended(out, floored), State(*after) if causal else None


class _Recomputed(torch.autograd.Function):
    """Forward by the kernels; backward runs torch's block-by-block form again and differentiates that."""

    @staticmethod
    def forward(
        ctx: Any, feature_map: FeatureMap, sequence: Sequence, causal: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        state = State(*tensors[3:8]) if causal else None
        attended, after = _run(feature_map, sequence._replace(q=tensors[0], k=tensors[1], v=tensors[2]), state)
        ctx.task = feature_map, sequence, causal
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(attended.floored)
        if after is None:
            return tuple(attended)
        ctx.mark_non_differentiable(after.log_max, after.length)
        return (*attended, *after)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        feature_map, sequence, causal = ctx.task
        saved = ctx.saved_tensors
        count = 8 if causal else 3
        leaves = [x.detach().requires_grad_(x.requires_grad) for x in saved[:count]]
        with torch.enable_grad():
            again = sequence._replace(q=leaves[0], k=leaves[1], v=leaves[2])
            if causal:
                attended, after = train_causal(feature_map, again, State(*leaves[3:8]))
                pairs = list(zip((attended.out, *after[:3]), (d_outputs[0], *d_outputs[2:5]), strict=True))
            else:
                pairs = [(train_bidirectional(feature_map, again).out, d_outputs[0])]
        wanted = [*leaves, *saved[count:]]
        used = [i for i, x in enumerate(wanted) if x.requires_grad]
        pairs = [(x, d.to(x.dtype)) for x, d in pairs if x.requires_grad]
        grads = torch.autograd.grad(
            [x for x, _ in pairs], [wanted[i] for i in used], [d for _, d in pairs], allow_unused=True
        )
        found = dict(zip(used, grads, strict=True))
        return (None, None, None, *(found.get(i) for i in range(len(wanted))))


class Layout(NamedTuple):
    """Sizes of a request, and the same padded to powers of two."""

    heads: int
    dim: int
    width: int
    value_dim: int
    groups: int
    BD: int
    BM: int
    BV: int

    @property
    def W(self) -> int:
        return self.BM * self.BV + self.BM + 16

    def pad_width(self, x: Tensor, value: float = 0.0) -> Tensor:
        """[..., M] -> [..., BM], each group by itself."""
        grouped = x.unflatten(-1, (self.groups, -1))
        missing = self.BM // self.groups - grouped.shape[-1]
        return torch.nn.functional.pad(grouped, (0, missing), value=value).flatten(-2)

    def state(self, sums: Tensor, tops: Tensor, before: State, length: int) -> State:
        """Sums [B · H, W] as a state."""
        batch = before.kv.shape[0]
        kv = sums[:, : self.BM * self.BV].unflatten(1, (self.groups, -1, self.BV))
        kv = kv[:, :, : self.width // self.groups, : self.value_dim].flatten(1, 2)
        k_sum = sums[:, self.BM * self.BV :][:, : self.BM].unflatten(1, (self.groups, -1))
        k_sum = k_sum[..., : self.width // self.groups].flatten(1)
        mass = sums[:, self.BM * self.BV + self.BM]
        rows = (batch, self.heads)
        return State(
            kv.unflatten(0, rows), k_sum.unflatten(0, rows), mass.view(rows), tops.view(rows), before.length + length
        )

    def sums(self, state: State) -> Tensor:
        """A state as sums [B · H, W]."""
        kv = torch.nn.functional.pad(state.kv, (0, self.BV - self.value_dim))
        kv = self.pad_width(kv.mT).mT.flatten(-2)
        mass = torch.nn.functional.pad(state.mass[..., None], (0, 15))
        return torch.cat([kv, self.pad_width(state.k_sum), mass], dim=-1).flatten(0, 1)


class Tables(NamedTuple):
    """The form of a map as the kernels read it: scale and shift of the inputs folded in, padded, float32 or split."""

    omega: Tensor
    low: Tensor
    bias: Tensor
    q_bias: Tensor
    shift: Tensor
    tilt: Tensor
    damping: Tensor
    root: Tensor
    root_low: Tensor
    root_bias: Tensor


def _run(feature_map: FeatureMap, sequence: Sequence, state: State | None) -> tuple[Attended, State | None]:
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in sequence[:3])
    form = feature_map.fused_form()
    assert form is not None
    layout = _layout(feature_map, form, v)
    scale = math.sqrt(softmax_scale(feature_map.head_dim, sequence.scale))
    tables = tuple(_tables(feature_map, form, layout, scale, k.dtype))
    options = {
        "GROUPS": layout.groups, "NORMALISED": form.is_normalised, "ELU": form.omega is None,
        "SPLIT": k.dtype != torch.float32, "WIDE": k.dtype == torch.float16, "BD": layout.BD, "BM": layout.BM,
        "BV": layout.BV, "W": layout.W, "num_warps": 4 if layout.BM * layout.BV < 8192 else 8, "num_stages": 2,
    }  # fmt: skip
    mask = q if sequence.key_mask is None else sequence.key_mask.contiguous().view(torch.uint8)
    key_options = {**options, "HAS_ROOT": form.root is not None, "HAS_MASK": sequence.key_mask is not None}
    batch, length = k.shape[0], k.shape[2]
    block = BLOCK if k.dtype == torch.bfloat16 else BLOCK_FLOAT
    rows = batch * layout.heads
    segment = _segment(rows, length)
    segments = -(-length // segment)
    sums = k.new_empty(rows, segments, layout.W, dtype=torch.float32)
    tops = k.new_empty(rows, segments, dtype=torch.float32)
    sizes = (layout.dim, layout.value_dim)
    with torch.cuda.device_of(q):
        kernels.sum_keys[(segments, rows)](
            k, *k.stride()[:3], v, *v.stride()[:3], mask, sums, tops, layout.heads, length, *sizes, segment, scale,
            tables, form.constant, BN=block, **key_options,
        )  # fmt: skip
        out = q.new_empty(*q.shape[:3], layout.value_dim)
        floored = torch.empty(q.shape[:3], dtype=torch.int8, device=q.device)
        groups = q.shape[1] // layout.heads
        if state is None:
            total, top = _total(sums, tops)
            kernels.read_sums[(-(-q.shape[2] // block), batch * q.shape[1])](
                q, *q.stride()[:3], total, top, out, floored, layout.heads, groups, q.shape[2], *sizes, scale, SMALLEST,
                tables, BN=block, **options,
            )  # fmt: skip
            return Attended(out, floored.view(torch.bool)), None
        before = sums.new_empty(rows, segments + 1, layout.W)
        tops_before = tops.new_empty(rows, segments + 1)
        before[:, 0], tops_before[:, 0] = layout.sums(state), state.log_max.flatten()
        kernels.scan_sums[(-(-layout.W // SCAN_BLOCK), rows)](
            sums, tops, before, tops_before, segments, layout.W, BW=SCAN_BLOCK
        )
        kernels.read_causal[(segments, batch * q.shape[1])](
            q, *q.stride()[:3], k, *k.stride()[:3], v, *v.stride()[:3], mask, before, tops_before, out, floored,
            layout.heads, groups, length, *sizes, segment, scale, SMALLEST, tables, form.constant,
            BN=CAUSAL_BLOCK, **key_options,
        )  # fmt: skip
    after = layout.state(before[:, -1], tops_before[:, -1], state, length)
    return Attended(out, floored.view(torch.bool)), after


def _segment(rows: int, length: int) -> int:
    """Tokens a program goes through: a multiple of the block, few enough that all processors have work."""
    blocks = -(-length // BLOCK)
    return max(blocks * rows // PROGRAMS, 1) * BLOCK


def _total(sums: Tensor, tops: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of all segments at their largest maximum."""
    top = tops.amax(1)
    weights = torch.exp(tops - torch.where(top == -torch.inf, 0.0, top)[:, None])
    return torch.bmm(weights[:, None], sums)[:, 0], top


def _layout(feature_map: FeatureMap, form: FusedForm, v: Tensor) -> Layout:
    width, dim, value_dim = feature_map.num_features, feature_map.head_dim, v.shape[-1]
    wide = max(form.groups * padded(width // form.groups, 1), 16)
    return Layout(feature_map.num_heads, dim, width, value_dim, form.groups, padded(dim), wide, padded(value_dim))


def _tables(feature_map: FeatureMap, form: FusedForm, layout: Layout, scale: float, dtype: torch.dtype) -> Tables:
    """Queries are not shifted, so that they have a bias of their own."""
    shift = feature_map.key_shift.float()
    nothing = shift.new_zeros(1)
    if form.omega is None:
        omega, low, bias, q_bias = (nothing,) * 4
    else:
        exact = form.omega.float()
        own = shift.new_zeros(layout.heads, layout.width) if form.bias is None else form.bias.float()
        # Keys are shifted after the product, which is exact for inputs of half precision.
        moved = own - (shift[:, None] @ exact)[:, 0]
        q_bias, bias = (layout.pad_width(x, -math.inf).contiguous() for x in (own, moved))
        omega, low = _split(layout.pad_width(scale * exact), layout, dtype)
    if form.root is None:
        root, root_low, root_bias = (nothing,) * 3
    else:
        turn = form.root.float()
        root_bias = _padded(-(shift[:, None] @ turn)[:, 0], layout)
        root, root_low = _split(torch.nn.functional.pad(scale * turn, (0, layout.BD - turn.shape[-1])), layout, dtype)
    tilt = torch.zeros_like(shift) if form.tilt is None else form.tilt.float()
    damping = torch.zeros_like(shift[:, 0]) if form.damping is None else form.damping.float()
    return Tables(
        omega, low, bias, q_bias, _padded(shift, layout), _padded(tilt, layout), damping.contiguous(), root, root_low,
        root_bias,
    )  # fmt: skip


def _padded(x: Tensor, layout: Layout) -> Tensor:
    return torch.nn.functional.pad(x, (0, layout.BD - x.shape[-1])).contiguous()


def _split(matrix: Tensor, layout: Layout, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """[H, D, W] -> [H, BD, W] in ``dtype``, and what that rounds away."""
    matrix = torch.nn.functional.pad(matrix, (0, 0, 0, layout.BD - matrix.shape[1]))
    high = matrix.to(dtype).contiguous()
    return high, (matrix - high).to(dtype).contiguous()
