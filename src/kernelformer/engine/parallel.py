"""One sequence over many processes: each holds a slice, and they exchange states, never tokens.

A state stands for the keys and values of a slice, whatever its length. States form a monoid: two join into that of
both slices, an empty one changes nothing, and the order of joining does not matter. So every process folds its own
slice, one ``all_gather`` hands each the states of all, and what a query may see is the join of some: of all slices if
bidirectional, of those before its own if causal. The gradient takes the same way back by one ``all_reduce``. Both
carry B · H · (M · Dv + M + 4) numbers a process, however long the sequence is.

Reference: Sun et al. 2024, arXiv 2404.02882 (linear attention sequence parallelism), there without a running maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kernelformer.engine.bidirectional import fold_keys, read_state
from kernelformer.engine.blockwise import Sequence, blocks, cut_all, empty_sums, fold_sequence, keep_memory
from kernelformer.engine.choose import attend
from kernelformer.engine.state import Attended, State
from kernelformer.features import FeatureMap

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["attend_slice", "combine", "gather_states", "remember_slices", "start_of_slice"]

# The tokens seen travel as two numbers that float32 holds exactly.
_LENGTH_PART = 1 << 20


def attend_slice(
    feature_map: FeatureMap,
    sequence: Sequence,
    group: ProcessGroup,
    *,
    causal: bool,
    state: State | None = None,
    wanted: str = "auto",
) -> tuple[Attended, State]:
    """Attention of this process's slice to the slices of all, and the state after the last of them.

    Every process of ``group`` must call it, in the order of its rank, with a slice of any length, 0 included.

    Args:
        state: what came before the first slice, the same in every process.
        wanted: the backend, of ``choose.BACKENDS``, of the slice's own causal sums.
    """
    before = empty_sums(feature_map, sequence) if state is None else state
    states = gather_states(_fold(feature_map, sequence), group)
    states = State(*(torch.cat([first[None], rest]) for first, rest in zip(before, states, strict=True)))
    order = torch.arange(len(states.length), device=states.kv.device)
    after = combine(states, order >= 0)
    if causal:
        seen = combine(states, order <= dist.get_rank(group))
        attended, _ = attend(feature_map, sequence, causal=True, state=seen, wanted=wanted)
        if not sequence.k.shape[2]:
            # For the sake of a graph, see _fold.
            attended = attended._replace(out=attended.out + 0.0 * seen.mass.sum())
        return attended, after
    return _read(feature_map, sequence, after), after


def remember_slices(feature_map: FeatureMap, sequence: Sequence, group: ProcessGroup) -> State:
    """The state of the keys and values of all slices, the same in every process."""
    states = gather_states(_fold(feature_map, sequence), group)
    return combine(states, torch.ones_like(states.length, dtype=torch.bool))


def combine(states: State, seen: Tensor) -> State:
    """The join of those states that are ``seen``; what the others hold, NaN included, does not enter.

    Shape:
        states: every field of a state with a leading dimension W; seen: bool [W].
    """

    def only_seen(x: Tensor, other: float) -> Tensor:
        return x.masked_fill(~seen.reshape(-1, *[1] * (x.ndim - 1)), other)

    log_max = only_seen(states.log_max, -torch.inf)
    top = log_max.amax(0)
    weights = torch.exp(log_max - torch.where(top == -torch.inf, 0.0, top))
    kv, k_sum, mass = (only_seen(x, 0.0) for x in states[:3])
    return State(
        torch.einsum("wbh,wbhmd->bhmd", weights, kv),
        torch.einsum("wbh,wbhm->bhm", weights, k_sum),
        torch.einsum("wbh,wbh->bh", weights, mass),
        top,
        only_seen(states.length, 0).sum(0),
    )


def gather_states(state: State, group: ProcessGroup) -> State:
    """The states of all processes, by rank, each field with a leading dimension W; gradients go to their owners."""
    kv, k_sum, mass, log_max, length = state
    rest = torch.stack([mass, log_max, *(x.to(mass).expand_as(mass) for x in _split_length(length))], dim=-1)
    packed = torch.cat([kv.flatten(2), k_sum, rest], dim=-1)
    gathered: Tensor = _Gather.apply(packed, group)  # type: ignore[no-untyped-call]
    kv, k_sum, rest = gathered.split([kv[0, 0].numel(), k_sum.shape[-1], 4], dim=-1)
    mass, log_max, parts, ones = rest.unbind(-1)
    lengths = parts.detach()[:, 0, 0].long() * _LENGTH_PART + ones.detach()[:, 0, 0].long()
    return State(kv.unflatten(-1, state.kv.shape[2:]), k_sum, mass, log_max.detach(), lengths)


def start_of_slice(x: Tensor, group: ProcessGroup) -> Tensor:
    """Tokens in the slices before this process's x [B, H, N, D]: one number of each is exchanged."""
    lengths = torch.zeros(dist.get_world_size(group), dtype=torch.int64, device=x.device)
    dist.all_gather(list(lengths.split(1)), lengths.new_tensor([x.shape[2]]), group=group)
    return lengths[: dist.get_rank(group)].sum()


def _split_length(length: Tensor) -> tuple[Tensor, Tensor]:
    return length // _LENGTH_PART, length % _LENGTH_PART


class _Gather(torch.autograd.Function):
    """[...] -> [W, ...]; the gradient of each process's part is the sum of what all processes made of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        gathered = x.new_empty(dist.get_world_size(group), *x.shape)
        dist.all_gather(list(gathered.unbind(0)), x.contiguous(), group=group)
        return gathered

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_gathered: Tensor) -> tuple[Tensor, None]:
        total = d_gathered.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total[dist.get_rank(ctx.group)], None


def _fold(feature_map: FeatureMap, sequence: Sequence) -> State:
    """The state of this slice alone; with gradients, features are computed again, not kept."""
    if not torch.is_grad_enabled():
        return fold_sequence(feature_map, sequence)
    state = empty_sums(feature_map, sequence)

    def fold(tokens: Sequence, before: State) -> State:
        return fold_keys(*tokens.keys(feature_map), before)

    # Without a token, too, there is a graph: the others wait in the backward pass for every process.
    rows = list(blocks(sequence.k, feature_map)) or [slice(0, 0)]
    keep_memory()
    for tokens in cut_all(sequence, rows, ("k", "v")):
        state = checkpoint(fold, tokens, state, use_reentrant=False)
    return state


def _read(feature_map: FeatureMap, sequence: Sequence, state: State) -> Attended:
    def read(tokens: Sequence) -> Attended:
        return read_state(tokens.queries(feature_map), state, floor=feature_map.floor, products=sequence.products())

    rows = list(blocks(sequence.q, feature_map)) or [slice(0, 0)]
    if torch.is_grad_enabled():
        parts = [checkpoint(read, tokens, use_reentrant=False) for tokens in cut_all(sequence, rows, ("q",))]
    else:
        parts = [read(sequence.cut(each)) for each in rows]
    return Attended(*(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True)))
