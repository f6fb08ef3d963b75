"""What a model's text embeddings are, and how those of a student compare with its teacher's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.errors import KernelformerError
from kernelformer.tasks.batches import LengthBatches, evaluating, padded, tokenise
from kernelformer.tasks.intervals import bootstrap_interval

__all__ = ["Agreement", "compare_embeddings", "embed", "mean_cosine"]

NEIGHBOURS: Final = 10
"""Nearest texts that are compared."""


class Agreement(TypedDict):
    """How a student's embeddings agree with its teacher's, over n texts.

    ``cosine`` is the mean over texts of cos(teacher, student), ``cosine_p05`` its 5 % quantile and
    ``cosines`` the values; ``neighbours`` the mean share of each text's ``neighbour_count`` nearest
    (by cosine, among the n texts) that both find. Intervals are 95 %, from a bootstrap over texts; one
    of ``neighbours`` takes the set of texts to choose from as given.
    """

    texts: int
    cosine: float
    cosine_ci: tuple[float, float]
    cosine_p05: float
    cosines: list[float]
    neighbours: float
    neighbours_ci: tuple[float, float]
    neighbour_count: int


@torch.no_grad()
def embed(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    batch_size: int = 32,
    max_length: int = 128,
) -> Tensor:
    """The mean of the last hidden state over the real tokens of each text, special ones included.

    The model runs in evaluation mode, on the device it is on, and gets its mode back. Texts of like
    length run together. A progress bar shows where stderr is a terminal.

    Returns:
        float32 [n, D] on the CPU, in the order of ``texts``.

    Raises:
        DataError: no texts.
        KernelformerError: an embedding is not finite.
    """
    tokens = tokenise(tokenizer, texts, max_length)
    order = LengthBatches(tokens.lengths, batch_size, seed=0, shuffle=False)
    pooled = torch.empty(len(texts), model.config.hidden_size, device="cpu")
    shown = tqdm(order, desc="embed", unit="batch", leave=False, disable=not sys.stderr.isatty())
    with evaluating(model):
        for rows, batch in padded(model, tokens, tokenizer, shown):
            hidden = model(**batch).last_hidden_state
            pooled[rows] = _mean_over_tokens(hidden, batch["attention_mask"]).cpu()
    broken = int((~pooled.isfinite()).any(-1).sum())
    if broken:
        raise KernelformerError(
            f"{broken} of {len(texts)} embeddings are not finite: the model has diverged, train it more slowly"
        )
    return pooled


def mean_cosine(first: Tensor, second: Tensor) -> float:
    """Of the rows of two embeddings of the same texts, [n, D] each."""
    return float(F.cosine_similarity(first.double(), second.double(), dim=-1).mean())


def compare_embeddings(teacher: Tensor, student: Tensor, *, seed: int = 0) -> Agreement:
    """Cosines and common nearest neighbours of two embeddings of the same texts.

    Args:
        teacher, student: [n, D] and [n, D], n at least 2.
        seed: of the bootstrap.

    Raises:
        KernelformerError: shapes differ, or there are fewer than two texts.
    """
    if teacher.shape != student.shape or teacher.ndim != 2 or len(teacher) < 2:
        raise KernelformerError(
            f"embeddings must be [n, D] of the same n >= 2 texts, got {list(teacher.shape)} and {list(student.shape)}"
        )
    cosines = F.cosine_similarity(teacher.double(), student.double(), dim=-1).numpy()
    count = min(NEIGHBOURS, len(teacher) - 1)
    shared = _shared_neighbours(teacher, student, count)
    return {
        "texts": len(cosines),
        "cosine": float(cosines.mean()),
        "cosine_ci": bootstrap_interval(cosines, seed),
        "cosine_p05": float(np.quantile(cosines, 0.05)),
        "cosines": cosines.tolist(),
        "neighbours": float(shared.mean()),
        "neighbours_ci": bootstrap_interval(shared, seed),
        "neighbour_count": count,
    }


def _mean_over_tokens(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    real = attention_mask.bool()[..., None]
    # Filled, not multiplied: zero times NaN would let padding in.
    return hidden.float().masked_fill(~real, 0.0).sum(1) / real.sum(1)


def _shared_neighbours(first: Tensor, second: Tensor, count: int) -> NDArray[np.float64]:
    """The share of the ``count`` nearest rows, itself left out, that both have in common, per row."""
    found = []
    for embedding in (first, second):
        search = NearestNeighbors(n_neighbors=count, metric="cosine", algorithm="brute").fit(embedding.numpy())
        found.append(search.kneighbors(return_distance=False))
    common = [len(set(a) & set(b)) for a, b in zip(*found, strict=True)]
    return np.asarray(common, dtype=np.float64) / count
