"""Embeddings are means over real tokens, whatever the batch; agreement is what its name says."""

from __future__ import annotations

import pytest
import torch
from transformers import BertModel, PreTrainedTokenizerBase

from kernelformer.errors import KernelformerError
from kernelformer.tasks.embedding import compare_embeddings, embed

TEXTS = ["a film", "a good bright film is a film", "bad", "dull plot", "a"]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_embed_is_the_mean_over_real_tokens_in_the_order_of_the_texts(
    model: BertModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    expected = []
    for text in TEXTS:
        hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
        expected.append(hidden[0].mean(0).detach())
    for batch_size in (1, 2, 5):
        found = embed(model, tokenizer, TEXTS, batch_size, 16)
        torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=0)


def test_embed_cuts_at_max_length(model: BertModel, tokenizer: PreTrainedTokenizerBase) -> None:
    cut, whole = embed(model, tokenizer, [TEXTS[1], "a good bright"], 2, 5)
    torch.testing.assert_close(cut, whole)


def test_embed_puts_the_mode_back_and_keeps_no_gradient(model: BertModel, tokenizer: PreTrainedTokenizerBase) -> None:
    for training in (True, False):
        model.train(training)
        first = embed(model, tokenizer, TEXTS, 2, 16)
        assert model.training is training
        assert torch.equal(first, embed(model, tokenizer, TEXTS, 2, 16))
        assert not first.requires_grad
    model.eval()


def test_embed_refuses_a_diverged_model(
    model: BertModel, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = model.embeddings.word_embeddings.weight.detach().clone()
    weight[tokenizer.convert_tokens_to_ids("dull")] = float("nan")
    monkeypatch.setattr(model.embeddings.word_embeddings, "weight", torch.nn.Parameter(weight))
    with pytest.raises(KernelformerError, match="1 of 5 embeddings are not finite"):
        embed(model, tokenizer, TEXTS, 2, 16)


def test_equal_embeddings_agree_wholly() -> None:
    teacher = draw(60, 8)
    agreement = compare_embeddings(teacher, 3 * teacher)
    assert agreement["cosine"] == pytest.approx(1)
    assert agreement["neighbours"] == 1
    assert agreement["neighbours_ci"] == (1, 1)
    assert agreement["neighbour_count"] == 10
    assert len(agreement["cosines"]) == agreement["texts"] == 60


def test_agreement_equals_a_count_by_hand() -> None:
    teacher, student = draw(40, 6), draw(40, 6) + 0.5 * draw(40, 6, seed=1)
    agreement = compare_embeddings(teacher, student)
    cosines = torch.nn.functional.cosine_similarity(teacher, student)
    assert agreement["cosines"] == pytest.approx(cosines.tolist(), abs=1e-6)
    assert agreement["cosine_p05"] == pytest.approx(float(cosines.quantile(0.05)), abs=1e-6)
    nearest = []
    for embedding in (teacher, student):
        unit = torch.nn.functional.normalize(embedding)
        nearest.append((unit @ unit.T).fill_diagonal_(-2).topk(10).indices.tolist())
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(*nearest, strict=True)]
    assert agreement["neighbours"] == pytest.approx(sum(shares) / 40)
    assert agreement["cosine_ci"][0] < agreement["cosine"] < agreement["cosine_ci"][1]


def test_unrelated_embeddings_share_neighbours_by_chance_alone() -> None:
    agreement = compare_embeddings(draw(400, 16), draw(400, 16, seed=1))
    assert agreement["neighbours"] == pytest.approx(10 / 399, abs=0.01)
    low, high = agreement["cosine_ci"]
    assert low < 0 < high


def test_few_texts_and_unequal_shapes() -> None:
    assert compare_embeddings(draw(3, 4), draw(3, 4))["neighbour_count"] == 2
    for pair in ((draw(3, 4), draw(4, 4)), (draw(1, 4), draw(1, 4))):
        with pytest.raises(KernelformerError, match="of the same n >= 2 texts"):
            compare_embeddings(*pair)
