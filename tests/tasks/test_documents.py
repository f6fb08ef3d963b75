"""Documents: messages go by their year, splits are found, and what is nothing is refused."""

from __future__ import annotations

import pytest

import kernelformer as kf
from kernelformer.tasks import documents
from kernelformer.tasks.documents import messages_by_year, read_language


def test_messages_are_split_by_year(monkeypatch):
    monkeypatch.setattr(documents, "annual_messages", lambda: [(y, str(y)) for y in (1790, 1979, 1980, 1999, 2000)])
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
