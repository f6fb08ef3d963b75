"""Give a Hugging Face model kernel attention, in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernelformer.attention import KernelAttention
from kernelformer.errors import KernelformerError, UnsupportedModelError
from kernelformer.feature_maps import build_feature_map, find_feature_map
from kernelformer.hf.cache import keep_state
from kernelformer.hf.interface import NAME, register
from kernelformer.hf.record import FORMAT, check_seed
from kernelformer.hf.shared_qk import check_shareable, share_queries_and_keys
from kernelformer.hf.sites import AttentionSite, find_sites

__all__ = ["attach", "convert"]


_SEEDS = 1000
"""Layer i of seed s draws from s times this plus i, so that seeds next to each other share no draw."""


def convert(
    model: PreTrainedModel,
    kernel: str = "hedgehog",
    num_features: int | None = None,
    layers: Sequence[int] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    window: int = 0,
    shared_qk: bool = False,
    seed: int = 0,
    example: dict[str, Tensor] | None = None,
) -> PreTrainedModel:
    """Replace softmax attention by kernel attention, in place; the new kernels are not fitted yet.

    Args:
        model: an encoder or decoder of transformers.
        kernel: a name of ``kernelformer.FEATURE_MAPS``, or "module:Class" for your own map.
        num_features: M, the width of phi; None is the map's own default.
        layers: indices of the attention layers to convert; None converts every layer but those with a sliding window,
            which are linear already. The others stay softmax.
        options: further arguments of the map's constructor; they are saved with the model.
        window: decoders only; exact softmax over the last ``window`` tokens, the kernel before (``KernelAttention``).
        shared_qk: the input of a converted layer, cut into heads, takes the place of its queries and of its keys, and
            their projections go (Q = K = reshape(x)).
        seed: of the map's random start; layer i draws from 1000 · seed + i.
        example: inputs to find the attention layers with; None takes the model's dummy inputs.

    Returns:
        The same model. Its ``config.kernelized`` says what was done, so ``model.save_pretrained(path)`` and
        ``kernelformer.load(path)`` are all that is needed to keep it.

    Raises:
        UnsupportedModelError: a layer to convert cannot be; the message says why.
        KernelformerError: no such kernel, layer or option; or the model is converted already.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869 (``shared_qk``).
    """
    if getattr(model.config, "kernelized", None):
        raise KernelformerError("this model has kernel attention already: convert the original model")
    kind: Any = find_feature_map(kernel)
    check_seed(seed)
    sites = find_sites(model, example)
    chosen = _choose(sites, layers)
    if window and any(sites[index].softcap for index in chosen):
        raise UnsupportedModelError("this model caps its scores (softcap), which a window does not: take window=0")
    if (window or kind.is_gated) and not all(sites[index].causal for index in chosen):
        reason = "a window lies behind a token" if window else "a gated kernel has an order"
        raise UnsupportedModelError(f"{reason}, and this model attends both ways: it is for decoders")
    if shared_qk:
        for index in sorted(chosen):
            check_shareable(model.base_model.get_submodule(sites[index].module), sites[index])
    record = {
        "format": FORMAT,
        "kernel": kernel,
        "num_features": num_features,
        "options": dict(options or {}),
        "window": window,
        "seed": seed,
        "shared_qk": shared_qk,
        "layers": [_as_record(site, index in chosen) for index, site in enumerate(sites)],
    }
    attach(model, record)
    model.config.kernelized = record
    register()
    model.set_attn_implementation(NAME)
    return model


def attach(model: PreTrainedModel, record: Mapping[str, Any]) -> None:
    """Put fresh kernels where ``record``, the content of ``config.kernelized``, says."""
    base, prefix = model.base_model, f"{model.base_model_prefix}."
    causal = []
    for index, layer in enumerate(record["layers"]):
        path = layer["module"].removeprefix(prefix)
        try:
            module = base.get_submodule(path)
        except AttributeError as error:
            raise KernelformerError(f"{type(model).__name__} has no attention layer {path!r}: {error}") from error
        if layer["causal"]:
            causal.append(module)
        if not layer["converted"]:
            module.kernel = None  # type: ignore[assignment]
            continue
        feature_map = build_feature_map(
            record["kernel"],
            layer["head_dim"],
            layer["num_kv_heads"],
            record["num_features"],
            options=record["options"],
            seed=_SEEDS * record["seed"] + index,
        )
        module.kernel = _marked(
            # A model meets short texts as well; the report says from which length the kernel wins.
            KernelAttention(
                feature_map, causal=layer["causal"], below_crossover="exact-kernel", window=record.get("window", 0)
            )
        )
        module.kernel.to(_device(module)).train(module.training)
        if record.get("shared_qk", False):
            share_queries_and_keys(module)
    for module in causal:
        keep_state(module)


def _marked(kernel: KernelAttention) -> KernelAttention:
    """Tell transformers' weight initialisation to leave the kernel alone."""
    for module in kernel.modules():
        module._is_hf_initialized = True  # type: ignore[assignment]
    return kernel


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _choose(sites: list[AttentionSite], layers: Sequence[int] | None) -> set[int]:
    if layers is None:
        chosen = {index for index, site in enumerate(sites) if not site.sliding}
        if not chosen:
            raise UnsupportedModelError("every attention layer has a sliding window, and so is linear already")
    else:
        chosen = set(layers)
        unknown = sorted(chosen - set(range(len(sites))))
        if unknown or not chosen:
            raise KernelformerError(f"layers must be some of 0 … {len(sites) - 1}, got {sorted(chosen)}")
    for index in sorted(chosen):
        refusal = sites[index].refusal
        if refusal is not None:
            raise UnsupportedModelError(
                f"attention layer {index} ({sites[index].module}) cannot be converted: {refusal}"
            )
    return chosen


def _as_record(site: AttentionSite, converted: bool) -> dict[str, Any]:
    return {
        "module": site.module,
        "converted": converted,
        "num_heads": site.num_heads,
        "num_kv_heads": site.num_kv_heads,
        "head_dim": site.head_dim,
        "causal": site.causal,
    }
