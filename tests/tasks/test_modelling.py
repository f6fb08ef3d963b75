"""Text to model: every byte comes back, blocks come once an epoch, splits are found."""

from __future__ import annotations

import pytest

import kernelformer as kf
from kernelformer.tasks import modelling
from kernelformer.tasks.batches import TokenisedTexts
from kernelformer.tasks.modelling import LanguageBatches, messages_by_year, read_language, train_vocabulary


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


def test_messages_are_split_by_year(monkeypatch):
    monkeypatch.setattr(modelling, "annual_messages", lambda: [(y, str(y)) for y in (1790, 1979, 1980, 1999, 2000)])
    assert messages_by_year() == (["1790", "1979"], ["1980", "1999"], ["2000"])


def test_a_folder_holds_a_file_a_split(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"wiki.{split}.tokens").write_text(split)
    assert read_language(str(tmp_path)) == (["train"], ["valid"], ["test"])
    (tmp_path / "wiki.test.raw").write_text("again")
    with pytest.raises(kf.DataError, match="one file with 'test' in its name, there are 2"):
        read_language(str(tmp_path))


def test_a_name_that_is_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(kf.DataError, match="no folder, and could not be loaded"):
        read_language(str(tmp_path / "absent"))
