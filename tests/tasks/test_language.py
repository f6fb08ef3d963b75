"""Prediction of text: what the figures mean, on models whose predictions are known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import transformers

import kernelformer as kf
from kernelformer.tasks.batches import TokenisedTexts
from kernelformer.tasks.language import likelihood, recall, token_blocks

VOCABULARY = 50


class Known(torch.nn.Module):
    """Predicts with the logits that a function of the ids says."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits
        self.device = torch.device("cpu")

    def forward(self, input_ids, attention_mask, use_cache):
        return SimpleNamespace(logits=self.logits(input_ids))


def _uniform(ids):
    return torch.zeros(*ids.shape, VOCABULARY)


def _copies(ids):
    """The token that followed the last earlier appearance of this token; all alike if there was none."""
    logits = _uniform(ids)
    for row in range(ids.shape[0]):
        followed = {}
        for place, token in enumerate(ids[row].tolist()):
            if token in followed:
                logits[row, place, followed[token]] = 20.0
            if place + 1 < ids.shape[1]:
                followed[token] = int(ids[row, place + 1])
    return logits


def _blocks(lengths, number=0):
    generator = torch.Generator().manual_seed(number)
    drawn = [torch.randint(1, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]
    return TokenisedTexts([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in drawn], max(lengths))


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    found = likelihood(Known(_uniform), _blocks([40, 33, 17, 40]))
    assert found["perplexity"] == pytest.approx(VOCABULARY)
    assert found["perplexity_ci"] == pytest.approx((VOCABULARY, VOCABULARY))
    assert found["tokens"] == 39 + 32 + 16 + 39
    assert [bucket[:2] for bucket in found["buckets"]] == [(1, 32), (32, 40)]


def test_the_loss_is_that_of_transformers_and_padding_counts_for_nothing():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        initializer_range=0.5,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).train()
    blocks = _blocks([40, 33, 17])
    total, count = 0.0, 0
    with torch.no_grad():
        for example in blocks.examples:
            ids = torch.tensor([example["input_ids"]])
            total += float(model(ids, labels=ids).loss) * (ids.shape[1] - 1)
            count += ids.shape[1] - 1
    for batch_size in (1, 3):
        assert likelihood(model, blocks, batch_size=batch_size)["perplexity"] == pytest.approx(
            math.exp(total / count), rel=1e-4
        )
    assert model.training


def test_buckets_make_the_whole():
    found = likelihood(Known(_copies), _blocks([100, 70, 100]))
    sizes = [3 * 31, 3 * 32, 2 * 36 + 6]
    logs = [math.log(value) for _, _, value in found["buckets"]]
    assert [bucket[0] for bucket in found["buckets"]] == [1, 32, 64]
    mean = sum(n * x for n, x in zip(sizes, logs, strict=True)) / sum(sizes)
    assert math.exp(mean) == pytest.approx(found["perplexity"])
    assert sum(sizes) == found["tokens"]


def test_recall_tells_a_memory_from_none():
    blocks = _blocks([400, 400])
    memory, none = (recall(Known(f), blocks, (32, 64, 5000), trials=8) for f in (_copies, _uniform))
    assert memory["distances"] == [32, 64]
    # Where a token of the passage comes again in between, the copy is of that place.
    assert min(memory["accuracy"]) > 3 * max(memory["novel"])
    assert none["accuracy"] == none["novel"] == [0.0, 0.0]


def test_a_block_never_holds_two_documents(tokenizer):
    words = "a good bad film plot is dull bright"
    texts = [" ".join([words] * 5), " ".join([words] * 3), "a good film"]
    blocks = token_blocks(tokenizer, texts, 30)
    assert blocks.lengths == [30, 24]
    with pytest.raises(kf.DataError, match="16 tokens"):
        token_blocks(tokenizer, ["a film"], 30)
    with pytest.raises(kf.KernelformerError, match="max_length=4"):
        token_blocks(tokenizer, texts, 4)


def test_a_model_that_diverged_is_an_error():
    broken = Known(lambda ids: _uniform(ids) * math.nan)
    with pytest.raises(kf.KernelformerError, match="diverged"):
        likelihood(broken, _blocks([20]))
