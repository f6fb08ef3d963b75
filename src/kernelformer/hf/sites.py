"""Which attention layers a model has, found by running it once, and whether they can be converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.utils import logging

from kernelformer.attention import KernelAttention, kernels_of
from kernelformer.errors import KernelformerError, UnsupportedModelError
from kernelformer.hf.interface import softmax_attention

__all__ = ["AttentionSite", "find_sites", "kernels"]

_PROBE = "kernelformer_probe"


@dataclass(frozen=True)
class AttentionSite:
    """One attention layer, as it was called: where it is, its shape, and why it may not be converted.

    ``module`` is the path below the base model, so that it holds for every head on top of it. ``sliding``: it sees the
    last tokens alone, and so is linear already. ``softcap``: its scores are capped.
    """

    module: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool
    refusal: str | None = None
    sliding: bool = False
    softcap: bool = False


def find_sites(model: PreTrainedModel, example: dict[str, Tensor] | None = None) -> list[AttentionSite]:
    """Run ``model`` once on a few tokens and list its attention layers in the order of their calls.

    Args:
        example: inputs to run the model on; None takes the model's own dummy inputs.

    Raises:
        UnsupportedModelError: no attention layer goes through transformers' attention interface.
    """
    seen: dict[int, AttentionSite] = {}
    names = {id(module): name for name, module in _base(model).named_modules()}

    def record(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
        if id(module) in names and id(module) not in seen:
            seen[id(module)] = _describe(names[id(module)], module, query, key, kwargs)
        return softmax_attention(module, query, key, value, mask, **kwargs)

    with _attention(model, record), torch.no_grad():
        model(**(model.dummy_inputs if example is None else example))
    if not seen:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not call its attention through transformers' attention interface (DeBERTa-v2 "
            "and MPNet are of this kind), so it cannot be converted: choose a BERT, RoBERTa, DistilBERT or MiniLM model"
        )
    return list(seen.values())


def kernels(model: nn.Module) -> dict[str, KernelAttention]:
    """Path -> kernel attention, for every converted layer of ``model``, in order."""
    return kernels_of(model)


def _describe(name: str, module: nn.Module, query: Tensor, key: Tensor, kwargs: dict[str, Any]) -> AttentionSite:
    causal = kwargs.get("is_causal")
    causal = bool(getattr(module, "is_causal", False)) if causal is None else bool(causal)
    refusal = None
    if kwargs.get("position_bias") is not None:
        refusal = "it adds a position bias to the scores, which no feature map can express (T5 is of this kind)"
    elif kwargs.get("sliding_window") is not None:
        refusal = "it attends to a sliding window, which is linear already"
    elif query.shape[2] != key.shape[2]:
        refusal = "it attends across two sequences"
    return AttentionSite(
        name,
        query.shape[1],
        key.shape[1],
        query.shape[3],
        causal,
        refusal,
        sliding=kwargs.get("sliding_window") is not None,
        softcap=kwargs.get("softcap") is not None,
    )


def _base(model: PreTrainedModel) -> nn.Module:
    return model.base_model


@contextmanager
def _attention(model: PreTrainedModel, function: Callable[..., Any]) -> Iterator[None]:
    """Let the model call ``function`` for its attention, in eval mode; restore both afterwards."""
    before, training = model.config._attn_implementation, model.training
    AttentionInterface.register(_PROBE, function)
    AttentionMaskInterface.register(_PROBE, sdpa_mask)
    try:
        with _quiet():
            model.set_attn_implementation(_PROBE)
        model.eval()
        yield
    except (TypeError, KeyError, IndexError, RuntimeError) as error:
        raise KernelformerError(
            f"{type(model).__name__} could not be run on a few tokens to find its attention layers ({error}): "
            "give example={...} with inputs that it takes"
        ) from error
    finally:
        model.set_attn_implementation(before)
        model.train(training)


@contextmanager
def _quiet() -> Iterator[None]:
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
