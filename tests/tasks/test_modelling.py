"""Text to model: every byte comes back, blocks come once an epoch."""

from __future__ import annotations

import pytest

import kernelformer as kf
from kernelformer.tasks.batches import TokenisedTexts
from kernelformer.tasks.modelling import LanguageBatches, train_vocabulary


def test_no_text_is_foreign_to_a_vocabulary():
    tokenizer = train_vocabulary(["the state of the union of the states"] * 3, 270)
    assert len(tokenizer) == 270
    text = "The états, naïve ☃"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer(" of the")["input_ids"]) < 7


def test_full_blocks_come_once_an_epoch():
    rows = [{"input_ids": [n] * 4} for n in range(6)] + [{"input_ids": [9, 9]}]
    batches = LanguageBatches(TokenisedTexts(rows, 4), 2, steps=7, seed=0)
    first = [batch["input_ids"][:, 0].tolist() for batch in batches[:3]]
    assert sorted(row for rows_of_batch in first for row in rows_of_batch) == list(range(6))
    assert len(batches) == 7 and batches[0]["labels"].equal(batches[0]["input_ids"])
    again = LanguageBatches(TokenisedTexts(rows, 4), 2, steps=7, seed=0)
    assert all(a["input_ids"].equal(b["input_ids"]) for a, b in zip(batches, again, strict=True))
    with pytest.raises(kf.KernelformerError, match="7 blocks of 4 tokens, the text has 6"):
        LanguageBatches(TokenisedTexts(rows, 4), 7, steps=1, seed=0)
