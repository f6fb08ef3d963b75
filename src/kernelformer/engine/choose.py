"""Which form of the same sums computes a request, and why."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from kernelformer.engine.bidirectional import attend_bidirectional, attend_quadratic
from kernelformer.engine.blockwise import Sequence, block_length, empty_sums, run_bidirectional, run_causal
from kernelformer.engine.causal import CHUNK_SIZE, attend_causal, attend_step
from kernelformer.engine.crossover import crossover_length, is_quadratic_faster
from kernelformer.engine.fused import why_not_fused
from kernelformer.engine.state import Attended, State
from kernelformer.engine.training import train_bidirectional, train_causal
from kernelformer.errors import KernelformerError
from kernelformer.features import FeatureMap
from kernelformer.traced import has_tangent, is_traced

__all__ = ["BACKENDS", "Choice", "attend", "choose", "explain", "warn_below_crossover"]

_said: set[bool] = set()

BACKENDS = ("auto", "torch", "triton")
"""What fits best; only PyTorch's own operators; only the fused Triton kernels."""


class Choice(NamedTuple):
    """``backend`` computes a request, in blocks of ``chunk_size`` tokens, because of ``reason``.

    Backends: "step" (one token after a state), "quadratic" (N × S weights), "whole" (all features at
    once), "blocks" (features of one block at a time), "recompute" (the same, with gradients), "triton" (features and
    sums in one kernel on a CUDA device; a gradient runs the form of "recompute" again).
    """

    backend: str
    chunk_size: int
    reason: str


_FUSED = Choice(
    "triton", 64, "features and sums in one kernel: no N × M tensor reaches device memory; gradients recompute in torch"
)


def explain(
    q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap, *, causal: bool = False, backend: str = "auto"
) -> Choice:
    """What ``KernelAttention`` with this ``backend`` would do with these tensors.

    Raises:
        KernelformerError: backend="triton" where it can't compute this; the message says why.

    Example:
        >>> import torch, kernelformer as kf
        >>> x = torch.zeros(1, 2, 4096, 8)
        >>> kf.engine.explain(x, x, x, kf.feature_maps.Favor(head_dim=8, num_heads=2)).backend
        'blocks'
    """
    return choose(feature_map, Sequence(q, k, v), causal=causal, wanted=backend)


def choose(
    feature_map: FeatureMap,
    sequence: Sequence,
    *,
    causal: bool,
    state: State | None = None,
    linear: bool = False,
    wanted: str = "auto",
) -> Choice:
    """The form for this request; ``linear`` leaves out the quadratic one, ``wanted`` is of ``BACKENDS``."""
    q, k = sequence.q, sequence.k
    if wanted == "triton":
        return _fused_or_refuse(feature_map, sequence)
    queries, keys = q.shape[2], k.shape[2]
    if causal and keys == 1:
        return Choice("step", 1, "one token: the state is updated and read once")
    if not causal and not linear and _is_short(q, k, sequence.v, feature_map):
        return Choice("quadratic", keys, f"{queries} × {keys} weights cost less than two passes through the features")
    if wanted == "auto" and why_not_fused(feature_map, sequence) is None:
        return _FUSED
    if is_traced(q):
        return Choice(
            "whole", CHUNK_SIZE, f"values on {q.device.type} are not looked at (compiled, transformed or no CPU)"
        )
    if any(has_tangent(x) for x in sequence[:3]):
        return Choice("whole", CHUNK_SIZE, "forward-mode derivatives follow all features at once")
    if not keys or not queries:
        return Choice("whole", CHUNK_SIZE, "there are no queries or no keys")
    size = block_length(k, feature_map)
    if not _needs_grad(feature_map, sequence, state):
        return Choice(
            "blocks", size, f"no gradient is asked for: features of {size} tokens at a time stay in the cache"
        )
    if max(queries, keys) <= size:
        return Choice("whole", CHUNK_SIZE, f"up to {size} tokens, features are kept for the gradient")
    return Choice("recompute", size, f"beyond {size} tokens, features are computed again for the gradient, not kept")


def attend(
    feature_map: FeatureMap,
    sequence: Sequence,
    *,
    causal: bool,
    state: State | None = None,
    linear: bool = False,
    wanted: str = "auto",
) -> tuple[Attended, State | None]:
    """Attention in the form that :func:`choose` names; the state after the sequence if causal."""
    backend = choose(feature_map, sequence, causal=causal, state=state, linear=linear, wanted=wanted).backend
    if backend == "triton":
        # Triton is imported where it is used.
        from kernelformer.engine.triton_attention import attend_fused

        needs_grad = _needs_grad(feature_map, sequence, state)
        return attend_fused(feature_map, sequence, causal=causal, state=state, needs_grad=needs_grad)
    if causal:
        return _causal(backend, feature_map, sequence, empty_sums(feature_map, sequence) if state is None else state)
    if backend == "recompute":
        return train_bidirectional(feature_map, sequence), None
    if backend == "blocks":
        return run_bidirectional(feature_map, sequence, empty_sums(feature_map, sequence))[0], None
    q, (k, v) = sequence.queries(feature_map), sequence.keys(feature_map)
    form = attend_quadratic if backend == "quadratic" else attend_bidirectional
    return form(q, k, v, floor=feature_map.floor), None


def warn_below_crossover(q: Tensor, k: Tensor, feature_map: FeatureMap, *, causal: bool) -> None:
    """Say once that exact attention is faster at this length, where that has been measured for the device."""
    if torch.compiler.is_compiling() or q.device.type != "cpu" or causal in _said:
        return
    length = min(q.shape[2], k.shape[2])
    least = crossover_length(q.shape[0] * q.shape[1], q.shape[3], feature_map.num_features, causal=causal)
    if 1 < length < least:
        _said.add(causal)
        warnings.warn(
            f"exact attention is faster than a kernel of {feature_map.num_features} features below a length of about "
            f'{least} on this device, got {length}; KernelAttention(..., below_crossover="exact-kernel") says nothing',
            stacklevel=4,
        )


def _fused_or_refuse(feature_map: FeatureMap, sequence: Sequence) -> Choice:
    reason = why_not_fused(feature_map, sequence)
    if reason is not None:
        raise KernelformerError(f'backend="triton" was asked for, but {reason}; backend="auto" takes what fits')
    return _FUSED


def _causal(backend: str, feature_map: FeatureMap, sequence: Sequence, state: State) -> tuple[Attended, State]:
    if backend == "recompute":
        return train_causal(feature_map, sequence, state)
    if backend == "blocks":
        return run_causal(feature_map, sequence, state)
    q, (k, v) = sequence.queries(feature_map), sequence.keys(feature_map)
    form = attend_step if backend == "step" else attend_causal
    return form(q, k, v, state=state, floor=feature_map.floor)


def _needs_grad(feature_map: FeatureMap, sequence: Sequence, state: State | None) -> bool:
    if not torch.is_grad_enabled():
        return False
    # Buffers, too: particles that are moved by their gradient may be frozen otherwise.
    tensors = [*sequence[:3], *(state or ()), *feature_map.parameters(), *feature_map.buffers()]
    return any(x.requires_grad for x in tensors)


def _is_short(q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap) -> bool:
    """Whether N × S weights cost less than two passes through M features."""
    rows, keys, heads = q.shape[2] * q.shape[1] // k.shape[1], k.shape[2], k.shape[0] * k.shape[1]
    width, value_dim = feature_map.num_features, v.shape[-1]
    if any(isinstance(size, torch.SymInt) for size in (*q.shape, *k.shape)):
        # Exported or compiled for any length: the form that is right for the long ones.
        return False
    if not is_traced(q):
        return is_quadratic_faster(rows, keys, heads, width, value_dim)
    # What calls cost has been measured for eager calls on a CPU alone.
    return rows * keys * (width + value_dim) < (rows + keys) * width * value_dim
