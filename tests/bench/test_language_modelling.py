"""The study of language models: what differs between rows is the kernel alone; resumed where it stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernelformer.bench import language_modelling
from kernelformer.bench.language_modelling import ROWS, SCALES, Row, build_model, language_markdown, run_study
from kernelformer.bench.rows import Rows
from kernelformer.tasks.documents import LanguageTexts

TINY = replace(
    SCALES["small"], vocabulary=260, length=16, width=16, feed_forward=16, num_layers=1, num_features=16, steps=4
)
TEXT = "To the Senate and the House of Representatives: the state of our Union is as it was. " * 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kernel)
def test_rows_share_all_weights_but_the_kernels(row):
    softmax = dict(build_model(TINY, Row("softmax"), 1).named_parameters())
    model = dict(build_model(TINY, row, 1).named_parameters())
    assert all(torch.equal(model[name], weight) for name, weight in softmax.items())
    assert all(".kernel." in name for name in model.keys() - softmax.keys())


def test_the_papers_sizes():
    """Table 6: 41M and 247M parameters with the vocabulary's; here without."""
    for scale, layers, width, head in (("paper", 6, 512, 64), ("paper-big", 16, 1024, 64)):
        size = SCALES[scale]
        assert (size.num_layers, size.width, size.width // size.num_heads) == (layers, width, head)
        assert (size.steps, size.batch_size, size.length, size.steps * size.warmup) == (100_000, 128, 512, 4000)


def test_the_study(tmp_path, monkeypatch):
    monkeypatch.setattr(language_modelling, "messages_by_year", lambda: LanguageTexts([TEXT], [TEXT], [TEXT]))
    rows, kept = (Row("softmax", 2.0, 1.5), Row("elu")), Rows(tmp_path / "rows.jsonl", {})
    study = run_study(TINY, 2, kept, tmp_path / "checkpoints", rows=rows)
    assert [(run["row"], run["seed"]) for run in study["runs"]] == [
        ("softmax", 0), ("elu", 0), ("softmax", 1), ("elu", 1)
    ]  # fmt: skip
    assert all(1.0 < run["test"] < 400 and len(run["curve"]) == 4 for run in study["runs"])
    assert not any((tmp_path / "checkpoints").glob("*"))
    assert run_study(TINY, 2, kept, tmp_path / "checkpoints", rows=rows)["runs"] == study["runs"]
    for run, test in zip(study["runs"], (10.0, 12.0, 10.0, 13.0), strict=True):
        run["test"] = test
    lines = language_markdown(study).splitlines()
    assert lines[2].startswith("| softmax | 10.00 ± 0.00 | +0.0% |") and "| 2.0 | 1.5 |" in lines[2]
    assert lines[3].startswith("| elu | 12.50 ± 0.71 | +25.0% |")
