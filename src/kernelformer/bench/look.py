"""What the attention of a model does on one text, and what the shape of its kernels is, as numbers to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernelformer.attention import KernelAttention
from kernelformer.feature_maps import Softmax
from kernelformer.features import FeatureMap, ProjectedFeatureMap, softmax_scale
from kernelformer.hf import kernels

__all__ = [
    "Cloud",
    "Shape",
    "attention_weights",
    "compare_clouds",
    "converted_layers",
    "first_middle_last",
    "kernel_shapes",
    "projections",
]

_PLACES, _PAIRS = 41, 256
_FARTHEST = 4.0
"""Distance to which a kernel is shown at least; softmax has fallen to 3e-4 there."""


@dataclass(frozen=True)
class Shape:
    """A kernel against the distance of query and key, median over heads and over pairs of tokens of a text.

    It is sqrt(k(q, k) k(k, q) / (k(q, q) k(k, k))) with the sign of k(q, k), in which factors of the query alone, which
    cancel in attention, and of the key alone have gone: exp(-‖q - k‖² / 2) for softmax. Query and key lie on the line
    through a real pair, at the same distance from the middle of that pair.

    Attributes:
        distance: ‖q - k‖, in units where softmax is exp(q·k).
        softmax, kernel: values at these distances.
        between: the median distance of a query and a key of the text.
    """

    distance: list[float]
    softmax: list[float]
    kernel: list[float]
    between: float


Cloud = dict[str, Any]
"""Projections of the first head of a layer, before and after learning, JSON values.

layer: its number. before, after: [x, y] on the two directions in which both together vary most. lengths_before,
lengths_after: of the projections of all heads, in their own space.
"""


def first_middle_last(layers: int) -> list[int]:
    """At most three of ``layers`` places, for pictures."""
    return sorted({0, layers // 2, layers - 1})


def converted_layers(model: PreTrainedModel) -> list[int]:
    """The numbers of the layers that are converted, in the order of ``hf.kernels``."""
    return [i for i, layer in enumerate(model.config.kernelized["layers"]) if layer["converted"]]


@torch.no_grad()
def attention_weights(model: PreTrainedModel, inputs: Mapping[str, Tensor], *, softmax: bool = False) -> list[Tensor]:
    """The weight of each token for each, mean over heads, [N, N] a converted layer; rows sum to one.

    They are the outputs for values that are the identity: whatever a kernel, its floor or its window does is in them.
    A softmax model is looked at as one converted to the kernel ``softmax``.

    Args:
        model: converted.
        inputs: one text, as the model takes it.
        softmax: what softmax makes of the same queries and keys, in the place of the kernel.
    """
    found = []
    for kernel, (q, k, v, key_mask, scale) in _calls(model, inputs):
        length = k.shape[2]
        identity = torch.eye(length, dtype=v.dtype, device=v.device).expand(*k.shape[:2], length, length)
        if softmax:
            exact = Softmax(k.shape[-1], k.shape[1])
            kernel = KernelAttention(exact, kernel.causal, below_crossover="ignore")
        found.append(kernel(q, k, identity, key_mask, scale).float().mean(1)[0])
    return found


@torch.no_grad()
def kernel_shapes(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[Shape | None]:
    """The shape of the kernel of each converted layer on a text; None where it has none, as softmax and gated ones."""
    return [_shape(kernel.feature_map, *call) for kernel, call in _calls(model, inputs)]


def projections(model: nn.Module) -> list[Tensor]:
    """``omega`` of each kernel, copied, [H, D, R]; empty unless all kernels have projections."""
    maps = [kernel.feature_map for kernel in kernels(model).values()]
    found = [x.omega.detach().float().cpu().clone() for x in maps if isinstance(x, ProjectedFeatureMap)]
    return found if len(found) == len(maps) else []


def compare_clouds(layers: Sequence[int], before: Sequence[Tensor], after: Sequence[Tensor]) -> list[Cloud]:
    """Of the first, middle and last layer; ``layers`` are the numbers of those that ``before`` and ``after`` are of."""
    return [_cloud(layers[i], before[i], after[i]) for i in (first_middle_last(len(after)) if after else ())]


def _cloud(layer: int, before: Tensor, after: Tensor) -> Cloud:
    """See :data:`Cloud`; ``before`` and ``after`` are [H, D, R]."""
    points = torch.cat([before[0], after[0]], dim=1).T.double()
    centred = points - points.mean(0)
    flat = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T
    first, second = flat.split([before.shape[2], after.shape[2]])
    return {
        "layer": layer,
        "before": _rounded(first),
        "after": _rounded(second),
        "lengths_before": _rounded(before.norm(dim=1).flatten()),
        "lengths_after": _rounded(after.norm(dim=1).flatten()),
    }


def _rounded(values: Tensor) -> Any:
    return values.double().mul(1e4).round().div(1e4).tolist()


def _calls(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Iterator[tuple[KernelAttention, tuple[Any, ...]]]:
    """Each kernel with the (q, k, v, key_mask, scale) that it is given in one pass."""
    found: dict[KernelAttention, tuple[Any, ...]] = {}
    with _watched(kernels(model).values(), found):
        model.eval()(**inputs, **({"use_cache": False} if model.can_generate() else {}))
    yield from found.items()


@contextmanager
def _watched(modules: Any, found: dict[KernelAttention, tuple[Any, ...]]) -> Iterator[None]:
    hooks = [
        module.register_forward_pre_hook(lambda kernel, call: found.__setitem__(kernel, call)) for module in modules
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _shape(
    feature_map: FeatureMap, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, scale: float | None
) -> Shape | None:
    if isinstance(feature_map, Softmax) or feature_map.is_gated:
        return None
    root = softmax_scale(q.shape[-1], scale) ** 0.5
    q, k = (x.float().repeat_interleave(q.shape[1] // x.shape[1], dim=1)[0] * root for x in (q, k))
    pairs = torch.cartesian_prod(*(torch.arange(q.shape[1]) for _ in range(2)))
    pairs = pairs[:: max(1, len(pairs) // _PAIRS)]
    # Maps see keys less their mean.
    shift = feature_map.key_shift.repeat_interleave(q.shape[0] // feature_map.num_heads, dim=0)[:, None]
    near, far = q[:, pairs[:, 0]], k[:, pairs[:, 1]] - shift  # [H, P, D]
    line = near - far
    between = float(line.norm(dim=-1).median())
    distance = torch.linspace(0, max(_FARTHEST, between), _PLACES)
    step = torch.nn.functional.normalize(line, dim=-1)[:, :, None] * distance[:, None] / 2
    middle = ((near + far) / 2)[:, :, None]
    return Shape(
        distance.tolist(),
        (-distance.square() / 2).exp().tolist(),
        _normalised(feature_map, middle + step, middle - step).nan_to_num().flatten(0, 1).median(0).values.tolist(),
        between,
    )


def _normalised(feature_map: FeatureMap, a: Tensor, b: Tensor) -> Tensor:
    """The kernel of :class:`Shape` at a, b [H, P, R, D]."""
    sign, log_ab = _log_kernel(feature_map, a, b)
    logs = (log_ab + _log_kernel(feature_map, b, a)[1] - sum(_log_kernel(feature_map, x, x)[1] for x in (a, b))) / 2
    return sign * logs.exp()


def _log_kernel(feature_map: FeatureMap, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Sign and logarithm of |k(q, k)| pair by pair, [H, P, R]."""
    shape = q.shape[:-1]
    q, k = (x.reshape(1, feature_map.num_heads, -1, x.shape[-1]) for x in (q, k))
    positions = torch.zeros(q.shape[2], dtype=torch.int64)
    of_q = feature_map.map_q(q, 1.0, positions)
    of_k = feature_map.map_k(k + feature_map.key_shift[:, None], 1.0, positions=positions)
    product = (of_q.values * of_k.values).sum(-1)
    logs = product.abs().log()
    for scale in (of_q.log_scale, of_k.log_scale):
        logs = logs if scale is None else logs + scale
    return product.sign().reshape(shape), logs.reshape(shape)
