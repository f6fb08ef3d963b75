"""Gradients block by block: features are recomputed in the backward pass, never kept.

Forward keeps the inputs and, for causal attention, the state before each block. Backward goes through the
blocks from the last to the first and carries the gradient of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kernelformer.engine.bidirectional import attend_bidirectional, fold_keys, read_state
from kernelformer.engine.blockwise import Sequence, blocks, empty_sums, run_bidirectional, run_causal
from kernelformer.engine.causal import CHUNK_SIZE, attend_causal
from kernelformer.engine.causal_backward import Block, block_backward
from kernelformer.engine.state import Attended, State
from kernelformer.features import FeatureMap, Features

__all__ = ["train_bidirectional", "train_causal"]

Grads = list[Tensor | None]
WIDTH = len(State._fields)


def train_bidirectional(feature_map: FeatureMap, sequence: Sequence) -> Attended:
    """``run_bidirectional`` with gradients for q, k, v and all parameters of the map."""
    out, floored = _apply(_Task(feature_map, sequence, False), None)
    return Attended(out, floored)


def train_causal(feature_map: FeatureMap, sequence: Sequence, state: State | None) -> tuple[Attended, State]:
    """``run_causal`` with gradients for q, k, v, the state and all parameters of the map."""
    out, floored, *after = _apply(_Task(feature_map, sequence, True), state)
    return Attended(out, floored), State(*after)


class _Task(NamedTuple):
    """What does not need a gradient; its sequence is only read for masks, scale and positions."""

    feature_map: FeatureMap
    sequence: Sequence
    is_causal: bool

    def names(self) -> list[str]:
        return [name for name, _ in _tensors(self.feature_map)]


def _tensors(feature_map: FeatureMap) -> list[tuple[str, Tensor]]:
    return [*feature_map.named_parameters(), *feature_map.named_buffers()]


def _apply(task: _Task, state: State | None) -> tuple[Tensor, ...]:
    state = empty_sums(task.feature_map, task.sequence) if state is None else state
    tensors = [tensor for _, tensor in _tensors(task.feature_map)]
    outputs: tuple[Tensor, ...] = _Blockwise.apply(task, *task.sequence[:3], *state, *tensors)  # type: ignore[no-untyped-call]
    return outputs


class _Called(nn.Module):
    """Runs ``task(feature_map)`` with other tensors in place of the map's own, by torch.func.functional_call."""

    def __init__(self, feature_map: FeatureMap) -> None:
        super().__init__()
        self.feature_map = feature_map

    def forward(self, task: Callable[[FeatureMap], Any]) -> Any:
        return task(self.feature_map)


def _with_tensors(task: _Task, tensors: Several[Tensor], run: Callable[[FeatureMap], Any]) -> Any:
    named = {f"feature_map.{name}": tensor for name, tensor in zip(task.names(), tensors, strict=True)}
    return torch.func.functional_call(_Called(task.feature_map), named, (run,))


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, task: _Task, *inputs: Tensor) -> tuple[Tensor, ...]:
        sequence, state = _rebuild(task, inputs)
        before: list[State] = []
        if task.is_causal:
            attended, after = run_causal(task.feature_map, sequence, state, before)
        else:
            attended, after = run_bidirectional(task.feature_map, sequence, state)
            before = [after]
        ctx.task, ctx.count = task, len(inputs)
        kept = [tensor for each in before for tensor in each]
        ctx.save_for_backward(*inputs, attended.out, *kept)
        ctx.mark_non_differentiable(attended.floored)
        if not task.is_causal:
            return tuple(attended)
        ctx.mark_non_differentiable(after.log_max, after.length)
        return (*attended, *after)

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        task, inputs, out, kept = ctx.task, saved[: ctx.count], saved[ctx.count], saved[ctx.count + 1 :]
        # out, kv, k_sum and mass have gradients; floored, log_max and length have none.
        d_outputs = (d_outputs[0], *d_outputs[2:5])
        with torch.autocast(d_outputs[0].device.type, enabled=False):
            if torch.is_grad_enabled():
                return (None, *_differentiable(task, inputs, d_outputs))
            before = [State(*kept[i : i + WIDTH]) for i in range(0, len(kept), WIDTH)]
            return (None, *_Backward(task, inputs, out).run(before, d_outputs))


class _Backward:
    """Gradients of all inputs, filled in block by block."""

    def __init__(self, task: _Task, inputs: Several[Tensor], out: Tensor) -> None:
        self.task = task
        self.inputs = inputs
        self.out = out
        self.sequence, _ = _rebuild(task, inputs)
        self.own = [_leaf(tensor, tensor) for tensor in inputs[3 + WIDTH :]]
        self.d_tokens = [torch.empty_like(x) if x.requires_grad else None for x in inputs[:3]]
        self.d_own: Grads = [None] * len(self.own)
        self.d_sums: list[Tensor] = []

    def run(self, before: list[State], d_outputs: Several[Tensor]) -> Grads:
        backward = self._causal if self.task.is_causal else self._bidirectional
        _with_tensors(self.task, self.own, lambda feature_map: backward(feature_map, before, *d_outputs))
        d_sums: Grads = [*self.d_sums] if self.task.is_causal else [None, None, None]
        return [*self.d_tokens, *d_sums, None, None, *self.d_own]

    def _causal(self, feature_map: FeatureMap, before: list[State], d_out: Tensor, *d_sums: Tensor) -> None:
        self.d_sums = list(d_sums)
        for rows, state in reversed(list(zip(blocks(self.sequence.k, feature_map), before, strict=True))):
            with torch.enable_grad():
                tokens = self._tokens(rows, (0, 1, 2))
                k, v = tokens.keys(feature_map)
                q = tokens.queries(feature_map)
            if k.log_decay is not None:
                self._by_autograd(rows, tokens, (q, k, v, state), d_out, feature_map.floor)
                continue
            length = rows.stop - rows.start
            chunk_size = length if length % CHUNK_SIZE else CHUNK_SIZE
            block = Block(_constant(q), _constant(k), v.detach(), state, self.out[:, :, rows])
            d_after = (self.d_sums[0], self.d_sums[1], self.d_sums[2])
            grads = block_backward(block, d_out[:, :, rows], d_after, floor=feature_map.floor, chunk_size=chunk_size)
            outputs, d_outputs = [q.values, k.values, v], [grads.q, grads.k, grads.v]
            if k.log_scale is not None:
                outputs, d_outputs = [*outputs, k.log_scale], [*d_outputs, grads.log_scale]
            self._add(rows, tokens, [], outputs, d_outputs)
            self.d_sums = list(grads.sums)

    def _by_autograd(
        self,
        rows: slice,
        tokens: Sequence,
        features: tuple[Features, Features, Tensor, State],
        d_out: Tensor,
        floor: float,
    ) -> None:
        """A gated block, whose products autograd differentiates."""
        q, k, v, state = features
        with torch.enable_grad():
            state, sums = _leaf_state(state)
            attended, after = attend_causal(q, k, v, floor=floor, state=state)
        self._add(rows, tokens, sums, [attended.out, *after[:3]], [d_out[:, :, rows], *self.d_sums])
        self.d_sums = self._found_sums

    def _bidirectional(self, feature_map: FeatureMap, before: list[State], d_out: Tensor) -> None:
        state, sums = _leaf_state(before[0])
        totals = [torch.zeros_like(x) for x in sums]
        for rows in blocks(self.sequence.q, feature_map):
            with torch.enable_grad():
                tokens = self._tokens(rows, (0,))
                attended = read_state(tokens.queries(feature_map), state, floor=feature_map.floor)
            self._add(rows, tokens, sums, [attended.out], [d_out[:, :, rows]])
            totals = [a + b for a, b in zip(totals, self._found_sums, strict=True)]
        # The sums are linear in what each block adds at the final scale.
        nothing = State(*(torch.zeros_like(x) for x in state[:3]), state.log_max, state.length)  # type: ignore[call-arg]
        for rows in blocks(self.sequence.k, feature_map):
            with torch.enable_grad():
                tokens = self._tokens(rows, (1, 2))
                after = fold_keys(*tokens.keys(feature_map), nothing)
            self._add(rows, tokens, [], list(after[:3]), totals)

    def _tokens(self, rows: slice, needed: tuple[int, ...]) -> Sequence:
        """The block ``rows`` of q, k and v as leaves."""
        q, k, v = (_leaf(x[:, :, rows], x) if i in needed else x.detach() for i, x in enumerate(self.inputs[:3]))
        return self.sequence.cut(rows)._replace(q=q, k=k, v=v)

    def _add(
        self, rows: slice, tokens: Sequence, sums: list[Tensor], outputs: list[Tensor], d_outputs: list[Tensor]
    ) -> None:
        pairs = [(x, d.to(x.dtype)) for x, d in zip(outputs, d_outputs, strict=True) if x.requires_grad]
        wanted = [*tokens[:3], *sums, *self.own]
        used = [i for i, x in enumerate(wanted) if x.requires_grad]
        found: Grads = [None] * len(wanted)
        if pairs and used:
            grads = torch.autograd.grad(
                [x for x, _ in pairs], [wanted[i] for i in used], [d for _, d in pairs], allow_unused=True
            )
            for i, grad in zip(used, grads, strict=True):
                found[i] = grad
        for total, d_token, leaf in zip(self.d_tokens, found[:3], tokens[:3], strict=True):
            if total is not None and leaf.requires_grad:
                total[:, :, rows] = 0.0 if d_token is None else d_token
        self._found_sums = [
            torch.zeros_like(x) if grad is None else grad for x, grad in zip(sums, found[3:], strict=False)
        ]
        self.d_own = [_plus(a, b) for a, b in zip(self.d_own, found[3 + len(sums) :], strict=True)]


def _differentiable(task: _Task, inputs: Several[Tensor], d_outputs: Several[Tensor]) -> Grads:
    """The same gradients with a graph of their own, for second derivatives: all features at once."""
    # Views, so that the gradient for one input does not run on through another.
    inputs = [x.view_as(x) for x in inputs]
    sequence, state = _rebuild(task, inputs)

    def run(feature_map: FeatureMap) -> list[Tensor]:
        q, (k, v) = sequence.queries(feature_map), sequence.keys(feature_map)
        if not task.is_causal:
            return [attend_bidirectional(q, k, v, floor=feature_map.floor).out]
        attended, after = attend_causal(q, k, v, floor=feature_map.floor, state=state)
        return [attended.out, *after[:3]]

    outputs = _with_tensors(task, inputs[3 + WIDTH :], run)
    pairs = [(x, d.to(x.dtype)) for x, d in zip(outputs, d_outputs, strict=True) if x.requires_grad]
    used = [i for i, x in enumerate(inputs) if x.requires_grad]
    wanted = [inputs[i] for i in used]
    grads = torch.autograd.grad(
        [x for x, _ in pairs], wanted, [d for _, d in pairs], create_graph=True, allow_unused=True
    )
    found: Grads = [None] * len(inputs)
    for i, grad in zip(used, grads, strict=True):
        found[i] = grad
    return found


def _rebuild(task: _Task, inputs: Several[Tensor]) -> tuple[Sequence, State]:
    state = State(*inputs[3 : 3 + WIDTH])
    return task.sequence._replace(q=inputs[0], k=inputs[1], v=inputs[2]), state


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _constant(features: Features) -> Features:
    return Features(*(None if x is None else x.detach() for x in features))  # type: ignore[arg-type]


def _leaf(x: Tensor, like: Tensor) -> Tensor:
    return x.detach().requires_grad_(like.requires_grad)


def _leaf_state(state: State) -> tuple[State, list[Tensor]]:
    """The state with its sums as leaves, and those."""
    sums = [x.detach().requires_grad_() for x in state[:3]]
    return State(sums[0], sums[1], sums[2], state.log_max, state.length), sums
