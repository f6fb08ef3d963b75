"""Converted encoders beyond transformers: in sentence-transformers, with more positions, exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelformer as kf
from kernelformer.hf import extend_positions

transformers = pytest.importorskip("transformers")

WORDS = ["a", "film", "bad", "good", "dull", "fine", "plot", "the", "actor", "scene"]


@pytest.fixture
def folder(build, tmp_path: Path) -> Path:
    """A converted encoder with a tokenizer."""
    (tmp_path / "vocab.txt").write_text("\n".join(["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"), model_max_length=40)
    tokenizer.save_pretrained(tmp_path / "model")
    kf.convert(build("bert"), "hedgehog", 16).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_it_encodes_in_sentence_transformers(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from kernelformer.hf.sentences import sentence_transformer

    texts = ["a good film", "the plot the plot the plot is bad", "film"]
    model = sentence_transformer(folder)
    found = model.encode(texts, convert_to_tensor=True)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = kf.load(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    torch.testing.assert_close(found, (hidden * mask).sum(1) / mask.sum(1))
    assert len(kf.hf.kernels(model)) == 2
    model.save(str(tmp_path / "saved"))
    again = sentence_transformer(tmp_path / "saved", max_length=3)
    assert len(kf.hf.kernels(again)) == 2
    assert again.max_seq_length == 3
    torch.testing.assert_close(again.encode(["film"], convert_to_tensor=True)[0], found[2])


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_positions_are_interpolated(build, family: str, tmp_path: Path) -> None:
    model = kf.convert(build(family), "hedgehog", 16)
    table = model.embeddings.position_embeddings
    kept = 0 if table.padding_idx is None else table.padding_idx + 1
    before = table.weight.detach().clone()
    positions = 2 * (len(before) - kept) - 1
    ids = torch.full((1, positions), 7)
    with pytest.raises((IndexError, RuntimeError)), torch.no_grad():
        model(input_ids=ids)
    assert extend_positions(model, positions) is model
    after = model.embeddings.position_embeddings.weight
    torch.testing.assert_close(after[: kept + 1], before[: kept + 1])
    torch.testing.assert_close(after[kept::2], before[kept:])
    torch.testing.assert_close(after[kept + 1], (before[kept] + before[kept + 1]) / 2)
    with torch.no_grad():
        expected = model(input_ids=ids).last_hidden_state
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(kf.load(tmp_path)(input_ids=ids).last_hidden_state, expected)


def test_positions_that_cannot_be_extended_are_refused(build) -> None:
    with pytest.raises(kf.UnsupportedModelError, match="rope"):
        extend_positions(build("llama"), 100)
    with pytest.raises(kf.KernelformerError, match="40 positions already"):
        extend_positions(build("bert"), 40)
