"""Streamed batches: every text once an epoch, the same whoever asks and from where, and nothing read ahead."""

from __future__ import annotations

import json

import datasets
import pytest
import torch

from kernelformer.errors import DataError, KernelformerError
from kernelformer.tasks.streaming import StreamBatches

WORDS = ("good", "bad", "film", "plot", "is", "dull", "bright")
TEXTS = [" ".join(WORDS[(row + 3 * place) % 7] for place in range(1 + row % 11)) for row in range(50)]


class Counted:
    """Rows that say how many of them were read, and in which epoch."""

    def __init__(self, texts):
        self.texts, self.read, self.epochs = texts, 0, []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        for text in self.texts:
            self.read += 1
            yield {"text": text}


def stream(rows, tokenizer, **changed):
    return StreamBatches(rows, tokenizer, 4, **{"steps": 100, "max_length": 16, "buffer": 20, **changed})


def rows_of(batches):
    pairs = [pair for x in batches for pair in zip(x["input_ids"], x["attention_mask"].bool(), strict=True)]
    return sorted(tuple(row[mask].tolist()) for row, mask in pairs)


def test_every_text_comes_once_an_epoch_in_another_order(tokenizer):
    rows = Counted(TEXTS)
    steps = 5 + 5 + 3  # 20, 20 and 10 texts
    found = list(stream(rows, tokenizer, steps=2 * steps))
    assert rows_of(found[:steps]) == rows_of(found[steps:]) == sorted(tuple(tokenizer(t)["input_ids"]) for t in TEXTS)
    assert any(
        not torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(found[:steps], found[steps:], strict=True)
    )
    assert rows.epochs == [0, 1]


def test_no_more_than_the_buffer_is_read(tokenizer):
    rows = Counted(TEXTS)
    batches = stream(rows, tokenizer)
    assert rows.read == 0
    batches[4]
    assert rows.read == 20
    batches[5]
    assert rows.read == 40


@pytest.mark.parametrize("blocks", [False, True])
def test_a_batch_does_not_depend_on_those_asked_for_before(tokenizer, blocks):
    texts = [f"{text} {text} {text} {text} {text} {text}" for text in TEXTS]
    whole = list(stream([{"text": t} for t in texts], tokenizer, steps=40, blocks=blocks))
    for order in ([17, 18, 3, 39, 3], [39], [0, 2]):
        batches = stream([{"text": t} for t in texts], tokenizer, steps=40, blocks=blocks)
        for step in order:
            assert torch.equal(batches[step]["input_ids"], whole[step]["input_ids"])
    assert torch.equal(batches[-1]["input_ids"], whole[39]["input_ids"])
    assert torch.equal(batches[3:5][1]["input_ids"], whole[4]["input_ids"])
    with pytest.raises(IndexError):
        batches[40]


def test_blocks_leave_out_what_is_too_short_for_one(tokenizer):
    texts = ["good film"] * 20 + ["good film is dull " * 10, "bad"]
    batches = stream([{"text": text} for text in texts], tokenizer, steps=4, blocks=True, max_length=20)
    assert [batch["input_ids"].shape for batch in batches] == [(2, 20)] * 4
    with pytest.raises(DataError, match="long enough"):
        stream([{"text": "bad"}], tokenizer, blocks=True)[0]


def test_a_file_read_by_datasets_as_it_goes(tokenizer, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in ["", *TEXTS, "  "]), encoding="utf-8")
    rows = datasets.load_dataset(
        "json", data_files=str(path), split="train", streaming=True, cache_dir=str(tmp_path)
    ).shuffle(seed=0, buffer_size=10)
    found = list(stream(rows, tokenizer, steps=13, text_column="body"))
    assert rows_of(found) == sorted(tuple(tokenizer(text)["input_ids"]) for text in TEXTS)


def test_refusals(tokenizer):
    for name in ("steps", "batch_size", "buffer"):
        with pytest.raises(KernelformerError, match=f"{name} must be at least 1"):
            StreamBatches([], tokenizer, **{"batch_size": 1, "steps": 1, "max_length": 8, name: 0})
    with pytest.raises(DataError, match="no column 'text'; there are: body"):
        stream([{"body": "a film"}], tokenizer)[0]
    with pytest.raises(DataError, match="no row has a text"):
        stream([], tokenizer)[0]
