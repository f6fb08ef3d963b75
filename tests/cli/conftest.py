"""A tiny encoder with a tokenizer and a file of text; the command line called in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("typer")

from kernelformer.cli import main  # noqa: E402

WORDS = ["a", "film", "bad", "good", "dull", "fine", "plot", "the", "actor", "scene", "long", "short"]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=32,
        initializer_range=0.2,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 rows with text, label and film."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(120):
        words = [WORDS[i] for i in torch.randint(len(WORDS), (9,), generator=generator).tolist()]
        label = "fresh" if index % 2 else "rotten"
        rows.append({"text": " ".join([*words, "good" if index % 2 else "bad"]), "label": label, "film": index % 12})
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def kernelformer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command line; returns its exit code."""

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["kernelformer", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    return call
