"""Bytes of texts and pairs; stand-ins that do not give their label away."""

from __future__ import annotations

import gzip

import pytest

import kernelformer as kf
from kernelformer.tasks import byte_texts
from kernelformer.tasks.byte_texts import byte_ids, byte_task, manual_pairs, message_bytes, read_pairs
from kernelformer.tasks.text import Corpus


def test_bytes_begin_at_one_and_are_cut():
    assert byte_ids("aé", 10) == [98, 196, 170]
    assert byte_ids("abc", 2) == [98, 99]


def test_labels_are_numbers_of_sorted_classes():
    corpus = Corpus(("a", "b"), ("pos", "neg"), None, ())
    task = byte_task(corpus, corpus, corpus, 8)
    assert (task.train.labels, task.classes, task.train.inputs[0]) == ([1, 0], 2, [98])


def test_excerpts_of_messages(monkeypatch):
    """Balanced, of one length, and of different messages in different parts."""
    messages = [(1890 + year % 2 * 20, chr(65 + year % 60) * (10 + year)) for year in range(60)]
    monkeypatch.setattr(byte_texts, "annual_messages", lambda: messages)
    task = message_bytes(5, 0)
    for part in task[:3]:
        assert part.labels and sum(part.labels) * 2 == len(part.labels)
        assert {len(tokens) for tokens in part.inputs} == {5}
    letters = [{tokens[0] for tokens in part.inputs} for part in task[:3]]
    assert not (letters[0] & letters[1] or letters[0] & letters[2] or letters[1] & letters[2])


def test_manual_pages(tmp_path):
    folder = tmp_path / "man2"
    folder.mkdir()
    for number in range(480):
        see = "".join(f".BR page{number ^ other} (2),\n" for other in range(1, 8))
        text = f".SH NAME\npage{number}\n.SH SEE ALSO\n{see}.BR absent (3)\n.SH NOTES\nlast\n"
        (folder / f"page{number}.2.gz").write_bytes(gzip.compress(text.encode()))
    task = manual_pairs(100, 0, tmp_path)
    seen = []
    for part in task[:3]:
        texts = [[bytes(x - 1 for x in page).decode() for page in pair] for pair in part.inputs]
        assert all("SEE" not in text and text.endswith("last\n") for pair in texts for text in pair)
        numbers = [[int(text.split()[2].removeprefix("page")) for text in pair] for pair in texts]
        assert [int(a // 8 == b // 8) for a, b in numbers] == part.labels
        assert sum(part.labels) * 2 == len(part.labels)
        seen.append({number for pair in numbers for number in pair})
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    with pytest.raises(kf.DataError, match="manpages"):
        manual_pairs(100, 0, tmp_path / "absent")


def test_official_pairs(tmp_path):
    for name in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text("1.0\ta\tb\tone text\ttwo\n0.0\tc\td\tx\ty\n")
    task = read_pairs(tmp_path, 3)
    assert task.train.labels == [1, 0]
    assert task.train.inputs[0] == [byte_ids("one", 3), byte_ids("two", 3)]
    (tmp_path / "new_aan_pairs.eval.tsv").write_text("1\ta\n")
    with pytest.raises(kf.DataError, match=r"new_aan_pairs.eval.tsv is no file of pairs"):
        read_pairs(tmp_path)
