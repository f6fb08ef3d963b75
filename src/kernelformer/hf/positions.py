"""More positions than a model was trained with: its table of them, stretched."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from kernelformer.errors import KernelformerError, UnsupportedModelError

__all__ = ["extend_positions"]


def extend_positions(model: PreTrainedModel, positions: int) -> PreTrainedModel:
    """Stretch the learned position embeddings of an encoder over more positions, in place, by linear interpolation.

    Row i of the new table is the old one at i · (P - 1) / (positions - 1), P what it had: texts of any length then see
    distances shrunk by one factor, which training makes good. What RoBERTa keeps for padding stays as it is.

    Args:
        positions: of the longest text, in tokens; more than the model has.

    Returns:
        The same model.

    Raises:
        UnsupportedModelError: it has no learned table (rotary models extend by their config's rope_parameters).
        KernelformerError: it has that many already.

    References:
        Chen et al. 2023, arXiv 2306.15595, there for rotary embeddings.
    """
    embeddings = getattr(model.base_model, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    if not isinstance(embeddings, nn.Module) or not isinstance(table, nn.Embedding):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no encoder with a learned table of positions, which is what can be stretched; "
            "rotary models take more by rope_parameters in their config"
        )
    kept = 0 if table.padding_idx is None else table.padding_idx + 1
    before = table.num_embeddings - kept
    if positions <= before:
        raise KernelformerError(f"the model has {before} positions already, got {positions}: give more, or none")
    with torch.no_grad():
        old = table.weight[kept:].T[None].float()
        new = nn.functional.interpolate(old, size=positions, mode="linear", align_corners=True)[0].T
        weight = torch.cat([table.weight[:kept], new.to(table.weight.dtype)])
    stretched = nn.Embedding(kept + positions, table.embedding_dim, table.padding_idx, _weight=weight)
    stretched.weight.requires_grad_(table.weight.requires_grad)
    stretched._is_hf_initialized = True  # type: ignore[assignment]
    embeddings.position_embeddings = stretched
    model.config.max_position_embeddings = kept + positions
    ids = torch.arange(kept + positions, device=weight.device)[None]
    for name, buffer in (("position_ids", ids), ("token_type_ids", torch.zeros_like(ids))):
        if isinstance(getattr(embeddings, name, None), torch.Tensor):
            embeddings.register_buffer(name, buffer, persistent=False)
    return model
