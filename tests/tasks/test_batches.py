"""Every text comes once an epoch, with little padding, in an order that the seed fixes."""

from __future__ import annotations

import itertools

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.batches import LengthBatches, batches, evaluating, tokenise

GENERATOR = torch.Generator().manual_seed(0)
LENGTHS = torch.randint(1, 60, (501,), generator=GENERATOR).tolist()


def test_every_row_comes_once_an_epoch() -> None:
    for shuffle in (True, False):
        order = LengthBatches(LENGTHS, 8, seed=0, shuffle=shuffle)
        drawn = list(order)
        assert len(drawn) == len(order) == 63
        assert sorted(row for batch in drawn for row in batch) == list(range(501))
        assert sorted(map(len, drawn))[:2] == [5, 8]


def test_the_order_is_that_of_seed_and_epoch() -> None:
    order = LengthBatches(LENGTHS, 8, seed=0)
    first, second = list(order), list(order)
    assert first != second
    again = LengthBatches(LENGTHS, 8, seed=0)
    again.set_epoch(1)
    assert list(again) == second
    assert list(LengthBatches(LENGTHS, 8, seed=1)) != first


def test_texts_of_like_length_are_together_but_no_epoch_is_sorted() -> None:
    drawn = list(LengthBatches(LENGTHS, 8, seed=0))
    padded = sum(len(batch) * max(LENGTHS[row] for row in batch) for batch in drawn)
    assert sum(LENGTHS) / padded > 0.9
    tops = [max(LENGTHS[row] for row in batch) for batch in drawn]
    rises = sum(here < there for here, there in itertools.pairwise(tops))
    assert 0.3 < rises / len(tops) < 0.7


def test_another_epoch_puts_other_texts_together() -> None:
    order = LengthBatches(LENGTHS, 4, seed=0)
    first, second = ({tuple(sorted(LENGTHS[row] for row in batch)) for batch in order} for _ in range(2))
    # Sorting all texts at once would make the same batches again, but for texts of equal length.
    assert len(first & second) < len(first) / 2


def test_unshuffled_batches_begin_with_the_longest() -> None:
    tops = [max(LENGTHS[row] for row in batch) for batch in LengthBatches(LENGTHS, 8, seed=0, shuffle=False)]
    assert tops == sorted(tops, reverse=True)


def test_tokenise_cuts_and_counts(tokenizer: PreTrainedTokenizerBase) -> None:
    tokens = tokenise(tokenizer, ["a film", "a good bright film is a film"], 6)
    assert tokens.lengths == [4, 6]
    assert tokens.full == 1
    assert tokens[1]["input_ids"][0] == tokenizer.cls_token_id
    assert tokens[1]["input_ids"][-1] == tokenizer.sep_token_id


def test_a_pair_is_one_sequence_of_which_the_longer_text_is_cut(tokenizer: PreTrainedTokenizerBase) -> None:
    tokens = tokenise(tokenizer, ["a good bright film is a film"], 8, ["dull plot"])
    assert tokenizer.decode(tokens[0]["input_ids"]) == "[CLS] a good bright [SEP] dull plot [SEP]"


def test_batches_are_padded_tensors_and_leave_the_global_generator_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    texts = ["a film", "a good bright film is a film", "bad"]
    loader = batches(tokenise(tokenizer, texts, 16), tokenizer, 3, seed=0)
    before = torch.get_rng_state()
    (batch,) = list(loader)
    assert torch.equal(torch.get_rng_state(), before)
    assert set(batch) == {"input_ids", "attention_mask", "token_type_ids"}
    assert {tuple(part.shape) for part in batch.values()} == {(3, 9)}
    assert sorted(batch["attention_mask"].sum(1).tolist()) == [3, 4, 9]
    assert torch.equal(batch["attention_mask"] == 0, batch["input_ids"] == tokenizer.pad_token_id)


def test_bad_requests_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(DataError, match="no texts"):
        tokenise(tokenizer, [], 16)
    with pytest.raises(KernelformerError, match="above the 2 special tokens of a text, got 2"):
        tokenise(tokenizer, ["a"], 2)
    with pytest.raises(KernelformerError, match="batch_size must be at least 1, got 0"):
        LengthBatches(LENGTHS, 0, seed=0)


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_a_model_is_restored_after_an_error_too(mode: bool) -> None:
    model = torch.nn.Linear(1, 1).train(mode)

    def fail() -> None:
        with evaluating(model):
            raise ZeroDivisionError(f"training: {model.training}")

    with pytest.raises(ZeroDivisionError, match="training: False"):
        fail()
    assert model.training is mode
