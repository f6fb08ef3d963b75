"""How well a decoder predicts text: likelihood by position, and recall of what stood far back."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.batches import TokenisedTexts, evaluating
from kernelformer.tasks.intervals import bootstrap_interval

__all__ = ["Likelihood", "Recall", "likelihood", "recall", "token_blocks"]

_LEAST: Final = 16
"""Tokens below which what is left of a document is no block."""

_PASSAGE: Final = 32
"""Tokens that the recall probe repeats."""


class Likelihood(TypedDict):
    """Prediction of each next token of held-out blocks.

    perplexity: exp of the mean negative log likelihood; interval 95 %, from a bootstrap over blocks.
    accuracy: how often the likeliest token is the next. buckets: [first, last) positions of the predicted token,
    with the perplexity there.
    """

    tokens: int
    blocks: int
    perplexity: float
    perplexity_ci: tuple[float, float]
    accuracy: float
    buckets: list[tuple[int, int, float]]


class Recall(TypedDict):
    """A passage comes again after ``distance`` other tokens; accuracy of the likeliest token on its second half.

    novel: the same on its first appearance, what a model without memory of it gets.
    """

    distances: list[int]
    accuracy: list[float]
    novel: list[float]
    trials: int


def token_blocks(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int) -> TokenisedTexts:
    """Documents cut into blocks of ``length`` tokens; a block never holds two documents.

    Raises:
        DataError: no text is as long as 16 tokens.
        KernelformerError: ``length`` is below 16.
    """
    if length < _LEAST:
        raise KernelformerError(f"blocks need at least {_LEAST} tokens, got max_length={length}")
    examples = []
    # Texts longer than the model's positions are meant to be: they are cut here.
    for ids in tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]:
        parts = [ids[start : start + length] for start in range(0, len(ids), length)]
        examples += [{"input_ids": part, "attention_mask": [1] * len(part)} for part in parts if len(part) >= _LEAST]
    if not examples:
        raise DataError(f"no text is as long as {_LEAST} tokens, which a decoder needs to learn from")
    return TokenisedTexts(examples, length)


@torch.no_grad()
def likelihood(model: PreTrainedModel, blocks: TokenisedTexts, *, batch_size: int = 8, seed: int = 0) -> Likelihood:
    """Perplexity and accuracy of ``model`` on blocks, as they come, in evaluation mode.

    Raises:
        KernelformerError: a likelihood is not finite.
    """
    sums = np.zeros((blocks.max_length, 3))
    per_block: list[tuple[float, int]] = []
    with evaluating(model):
        for batch in _batches(model, blocks, batch_size):
            loss, right, real = _next_tokens(model, **batch)
            per_block += [(float(row.sum()), int(count.sum())) for row, count in zip(loss, real, strict=True)]
            columns = [x.double().sum(0).numpy() for x in (loss, right, real)]
            sums[1 : 1 + loss.shape[1]] += np.stack(columns, axis=1)
    if not np.isfinite(sums).all():
        raise KernelformerError("the model's likelihoods are not finite; it has diverged: train it more slowly")
    total, right_total, count = sums.sum(0)
    return {
        "tokens": int(count),
        "blocks": len(per_block),
        "perplexity": math.exp(total / count),
        "perplexity_ci": _interval(per_block, seed),
        "accuracy": float(right_total / count),
        "buckets": _buckets(sums),
    }


@torch.no_grad()
def recall(
    model: PreTrainedModel,
    blocks: TokenisedTexts,
    distances: Sequence[int] = (32, 64, 128, 256, 512),
    *,
    trials: int = 16,
    batch_size: int = 8,
    seed: int = 0,
) -> Recall:
    """Repeat a passage of 32 tokens after ``distances`` tokens of other text; both are drawn from ``blocks``.

    A model recalls if it predicts the second half of the passage by what stood far back.
    """
    stream = torch.tensor([token for example in blocks.examples for token in example["input_ids"]])
    generator = torch.Generator(device="cpu").manual_seed(seed)
    fitting = [d for d in distances if d + 2 * _PASSAGE <= len(stream)]
    result: Recall = {"distances": fitting, "accuracy": [], "novel": [], "trials": trials}
    half = _PASSAGE // 2
    with evaluating(model):
        for distance in fitting:
            rows = []
            for _ in range(trials):
                starts = [int(torch.randint(len(stream) - n, (1,), generator=generator)) for n in (_PASSAGE, distance)]
                passage, other = stream[starts[0] :][:_PASSAGE], stream[starts[1] :][:distance]
                rows.append(torch.cat([passage, other, passage]))
            hits = []
            for chunk in torch.stack(rows).split(batch_size):
                _, right, _ = _next_tokens(model, chunk.to(model.device), torch.ones_like(chunk).to(model.device))
                hits.append(right)
            right = torch.cat(hits).double()
            result["accuracy"].append(float(right[:, -half:].mean()))
            result["novel"].append(float(right[:, half - 1 : _PASSAGE - 1].mean()))
    return result


def _next_tokens(model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Negative log likelihood, whether the likeliest token is right, and which are real; [B, N - 1] each."""
    logits = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits[:, :-1].float()
    target, real = input_ids[:, 1:], attention_mask[:, 1:].bool()
    loss = F.cross_entropy(logits.transpose(1, 2), target, reduction="none").masked_fill(~real, 0.0)
    return loss.cpu(), ((logits.argmax(-1) == target) & real).cpu(), real.cpu()


def _batches(model: PreTrainedModel, blocks: TokenisedTexts, batch_size: int) -> Iterator[dict[str, Tensor]]:
    """Right-padded batches, in order; padding after the text changes nothing before it."""
    starts = range(0, len(blocks), batch_size)
    for start in tqdm(starts, desc="perplexity", unit="batch", leave=False, disable=not sys.stderr.isatty()):
        rows = [torch.tensor(blocks[i]["input_ids"]) for i in range(start, min(start + batch_size, len(blocks)))]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        yield {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}


def _interval(per_block: Sequence[tuple[float, int]], seed: int) -> tuple[float, float]:
    """Bootstrap over blocks of the mean loss, taken as the blocks' own means: they are of nearly one length."""
    means = np.array([loss / max(count, 1) for loss, count in per_block])
    low, high = bootstrap_interval(means, seed)
    return math.exp(low), math.exp(high)


def _buckets(sums: NDArray[np.float64]) -> list[tuple[int, int, float]]:
    """Positions in powers of two: 1, 2-3, 4-7, … would be too fine at the start, so the first holds 1-31."""
    edges = [1]
    while edges[-1] < len(sums):
        edges.append(min(max(2 * edges[-1], 32), len(sums)))
    found = []
    for first, last in itertools.pairwise(edges):
        loss, _, count = sums[first:last].sum(0)
        if count:
            found.append((first, last, math.exp(loss / count)))
    return found
