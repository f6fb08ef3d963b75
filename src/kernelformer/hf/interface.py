"""The attention and mask functions that transformers calls for a converted model.

A converted attention module holds a :class:`~kernelformer.attention.KernelAttention` as ``kernel``; one that stays
softmax in a converted model has ``kernel = None``. Both dispatch through the same function, since transformers
keeps one attention name for a whole model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
)

from kernelformer.attention import KernelAttention, LayerCall
from kernelformer.errors import KernelformerError, UnsupportedModelError
from kernelformer.feature_maps import Softmax

if TYPE_CHECKING:
    from kernelformer.hf.cache import KernelStateLayer

__all__ = ["NAME", "LayerObjective", "kernel_of", "register", "softmax_attention"]

NAME = "kernelformer"
"""The attention implementation's name. It must not contain "sdpa" or "flash": transformers tests substrings."""

LayerObjective = Callable[[LayerCall], Tensor]
"""What was called -> what the layer returns as its attentions."""

_ABSENT = object()


def register() -> None:
    """Make the name known to transformers; calling it again changes nothing."""
    AttentionInterface.register(NAME, kernel_attention_forward)
    AttentionMaskInterface.register(NAME, kernel_mask)


def kernel_of(module: nn.Module) -> KernelAttention | None:
    """The kernel attention of an attention module; None where it stays softmax.

    Raises:
        KernelformerError: the config promises kernels, but this module was never given any.
    """
    kernel = getattr(module, "kernel", _ABSENT)
    if kernel is _ABSENT:
        if getattr(getattr(module, "config", None), "kernelized", None):
            raise KernelformerError(
                "this checkpoint holds kernel attention, but was loaded as a plain model, without its kernels: "
                "load it with kernelformer.load(path)"
            )
        return None
    return cast("KernelAttention | None", kernel)


def kernel_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    q_offset: int = 0,
    kv_offset: int = 0,
    local_size: int | None = None,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Tensor | None:
    """The padding mask as it came, bool [B, S], True = visible; linear attention needs no N × N mask.

    Layers with a sliding window, which stay softmax, get their mask [B, 1, N, S] from transformers.

    Raises:
        UnsupportedModelError: the model asks for a pattern that is neither causal nor full.
    """
    if local_size is not None:
        return sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function,
            attention_mask,
            local_size,
            allow_is_causal_skip=False,
            device=device,
        )
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        raise UnsupportedModelError(
            "kernel attention is causal or bidirectional; this model asks for another pattern (packed or block mask): "
            "give one sequence a row, without packed position_ids"
        )
    return attention_mask


def kernel_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    layer_objective: LayerObjective | None = None,
    kernel_state: KernelStateLayer | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls in the place of softmax attention.

    With ``layer_objective`` the layer returns the softmax output and, as attentions, the value of the objective:
    one pass through the model then teaches every layer, in memory linear in N. With ``kernel_state``, the keys and
    values are those of the new tokens alone, and the state stands for all before them.

    Raises:
        KernelformerError: a 4-D mask, a causality that contradicts the conversion, or absent kernels.
    """
    local = attention_mask is not None and attention_mask.ndim == 4 and kwargs.get("sliding_window") is not None
    if local and kernel_of(module) is None:
        return softmax_attention(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=False, **kwargs
        )
    if attention_mask is not None and attention_mask.ndim != 2:
        raise KernelformerError(
            f"kernel attention takes a padding mask [B, S], got one of shape {list(attention_mask.shape)}: "
            "give attention_mask as 0/1 per token"
        )
    if attention_mask is not None:
        attention_mask = attention_mask[:, -key.shape[2] :].bool()
    # Under autocast, rotary embeddings leave queries and keys in float32, the values in half precision.
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    kernel = kernel_of(module)
    if kernel is None or (isinstance(kernel.feature_map, Softmax) and query.shape[2] != key.shape[2]):
        return _softmax(module, query, key, value, attention_mask, dropout, scaling, is_causal, kwargs)
    if is_causal is not None and is_causal != kernel.causal:
        raise KernelformerError(f"this layer was converted with causal={kernel.causal}, got is_causal={is_causal}")
    if kernel_state is not None:
        out, kernel_state.state = kernel.stream(query, key, value, kernel_state.state, attention_mask, scaling)
        return out.transpose(1, 2).contiguous(), None
    if layer_objective is None:
        return kernel(query, key, value, attention_mask, scaling).transpose(1, 2).contiguous(), None
    with torch.no_grad():
        softmax, _ = _softmax(module, query, key, value, attention_mask, 0.0, scaling, is_causal, kwargs)
    call = LayerCall(kernel, query, key, value, attention_mask, scaling, softmax.transpose(1, 2))
    return softmax, layer_objective(call)


def softmax_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' SDPA attention, given only the arguments that change its result; capped scores by the model's own.

    Args:
        mask: bool [B, 1, N, S], True = visible.
    """
    if kwargs.get("softcap") is not None:
        return _capped_attention(module, query, key, value, mask, kwargs), None
    known = ("dropout", "scaling", "is_causal", "position_bias")
    kept = {name: value for name, value in kwargs.items() if name in known}
    return sdpa_attention_forward(module, query, key, value, mask, **kept)


def _capped_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    """SDPA ignores Gemma-2's softcap; the model's own eager function does not. Memory N × S."""
    if mask is None:
        causal = kwargs.get("is_causal")
        causal = bool(getattr(module, "is_causal", False)) if causal is None else causal
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        mask = (mask.tril(key.shape[2] - query.shape[2]) if causal else mask)[None, None]
    hidden = torch.finfo(query.dtype).min
    bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)
    eager = sys.modules[type(module).__module__].eager_attention_forward
    out: Tensor = eager(
        module,
        query,
        key,
        value,
        bias,
        dropout=kwargs.get("dropout", 0.0),
        scaling=kwargs.get("scaling"),
        softcap=kwargs["softcap"],
    )[0]
    return out


def _softmax(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    is_causal: bool | None,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:
    """Softmax attention by transformers' own SDPA function, its mask made from the padding mask."""
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    mask = None
    if key_mask is None and causal and 1 < query.shape[2] < key.shape[2]:
        # Behind a cache. Without a mask, SDPA would count the rows from the first key on.
        key_mask = torch.ones(key.shape[0], key.shape[2], dtype=torch.bool, device=key.device)
    if key_mask is not None:
        mask = key_mask[:, None, None, :].expand(-1, 1, query.shape[2], -1)
        if causal and query.shape[2] > 1:
            seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
            mask = mask & seen.tril(key.shape[2] - query.shape[2])
    return softmax_attention(
        module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs
    )
