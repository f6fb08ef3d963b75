"""Whether a request can be met by the fused Triton kernels. Triton itself is not imported here."""

from __future__ import annotations

import functools
import importlib.util

import torch

from kernelformer.engine.blockwise import Sequence
from kernelformer.features import FeatureMap
from kernelformer.traced import is_transformed

__all__ = ["why_not_fused"]

# What was compiled. Sums of M × Dv in float32 stay in registers, D × M frequencies in shared memory, which at these
# sizes takes 147 KB in bfloat16 and 174 KB in float32.
CAPABILITY = (9, 0)
LARGEST_GRID = 65_535
LARGEST_HEAD = 128
LARGEST_WIDTH = 256
LARGEST_PRODUCT = {torch.bfloat16: 128 * 128, torch.float16: 128 * 64, torch.float32: 128 * 64}


def why_not_fused(feature_map: FeatureMap, sequence: Sequence) -> str | None:
    """Why the Triton kernels can't compute this; None if they can."""
    q, k, v = sequence.q, sequence.k, sequence.v
    if any(x.device.type != "cuda" for x in (q, k, v)):
        return f"the tensors are on {q.device.type}, not on a CUDA device"
    if is_transformed(q):
        return "the call is compiled or transformed"
    if not _has_triton():
        return "triton is not installed: pip install 'kernelformer[gpu]'"
    if torch.cuda.get_device_capability(q.device) < CAPABILITY:
        return "the kernels need compute capability {}.{}".format(*CAPABILITY)
    if 0 in (q.shape[2], k.shape[2]):
        return "there are no queries or no keys"
    if q.shape[0] * q.shape[1] > LARGEST_GRID:
        return f"batch times heads is above {LARGEST_GRID:,}"
    return why_no_form(feature_map, q.dtype, v.shape[-1])


def why_no_form(feature_map: FeatureMap, dtype: torch.dtype, value_dim: int) -> str | None:
    """Why the kernels can't compute this map at these sizes, whatever the device; None if they can."""
    if dtype not in LARGEST_PRODUCT:
        return f"{dtype} is not one of float32, bfloat16, float16"
    if not _is_own_form(feature_map) or feature_map.floor > 0:
        return f"{type(feature_map).__name__} has no form that the kernels evaluate"
    form = feature_map.fused_form()
    if form is None:
        return f"{type(feature_map).__name__} has no form that the kernels evaluate"
    width = form.groups * padded(feature_map.num_features // form.groups, 1)
    head, value = padded(feature_map.head_dim), padded(value_dim)
    if max(head, value) > LARGEST_HEAD:
        return f"heads wider than {LARGEST_HEAD} don't fit"
    if width > LARGEST_WIDTH or width * max(head, value) > LARGEST_PRODUCT[dtype]:
        return f"{feature_map.num_features} features on heads of width {max(head, value)} don't fit in {dtype}"
    return None


def padded(size: int, least: int = 16) -> int:
    """The next power of two; matrix products need 16."""
    return max(1 << (size - 1).bit_length(), least)


def _is_own_form(feature_map: FeatureMap) -> bool:
    """Whether ``fused_form`` is of the class that says what phi is, or below it: a subclass may change phi alone."""
    order = type(feature_map).__mro__

    def depth(name: str) -> int:
        return next(i for i, kind in enumerate(order) if name in vars(kind))

    return all(depth("fused_form") <= depth(name) for name in ("phi", "phi_q", "phi_at"))


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
