"""Q = K = reshape(x): attention layers whose queries and keys are their input, cut into heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernelformer.errors import UnsupportedModelError
from kernelformer.hf.sites import AttentionSite

__all__ = ["check_shareable", "share_queries_and_keys"]

# What transformers calls the projections of queries and of keys, by family.
_PROJECTIONS = (("query", "key"), ("q_lin", "k_lin"), ("q_proj", "k_proj"))


def check_shareable(module: nn.Module, site: AttentionSite) -> None:
    """Whether the input of an attention module can stand for its queries and keys.

    Raises:
        UnsupportedModelError: queries, keys and values come from one fused projection, or the input is not as wide as
            all heads together.
    """
    names = _projections(module)
    if names is None:
        raise UnsupportedModelError(
            f"{site.module} has no projections of queries and keys of their own (one fused projection, as in GPT-2 and "
            "ModernBERT, is of this kind), so shared_qk cannot leave them out: take a BERT, RoBERTa or DistilBERT model"
        )
    width = getattr(module, names[0]).in_features
    if site.num_heads != site.num_kv_heads or site.num_heads * site.head_dim != width:
        raise UnsupportedModelError(
            f"{site.module} has inputs of width {width}, {site.num_heads} query heads and {site.num_kv_heads} key "
            f"heads of width {site.head_dim}: shared_qk needs as many query as key heads, together as wide as the input"
        )


def share_queries_and_keys(module: nn.Module) -> None:
    """Take the projections of queries and keys away: what they are given is what they hand on."""
    for name in _projections(module) or ():
        setattr(module, name, _AsItIs())


class _AsItIs(nn.Module):
    """Hands on its input, in the dtype that a projection would give it under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _projections(module: nn.Module) -> tuple[str, str] | None:
    children = dict(module.named_children())
    for names in _PROJECTIONS:
        if all(isinstance(children.get(name), nn.Linear) for name in names):
            return names
    return None
