"""The study of distilled kernels in and out of domain, on two made tasks; finished runs are kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("sklearn")
transformers = pytest.importorskip("transformers")

from kernelformer.bench import transfer  # noqa: E402
from kernelformer.bench.rows import Rows  # noqa: E402
from kernelformer.bench.transfer import SCALES, run_transfer, scale_settings  # noqa: E402
from kernelformer.bench.transfer_tables import claims_markdown, scores_markdown  # noqa: E402
from kernelformer.hf import kernels  # noqa: E402
from kernelformer.tasks.text import Corpus  # noqa: E402

WORDS = ["a", "film", "bad", "good", "dull", "fine", "plot", "the", "actor", "scene", "long", "short"]
NOWHERE = Path("nowhere")
TINY = dataclasses.replace(
    SCALES["small"],
    tasks=("films", "plots"),
    train_texts=40,
    test_texts=20,
    num_features=8,
    distill_steps=4,
    epochs=1,
    batch_size=16,
    learning_rate=1e-2,
)


@pytest.fixture(autouse=True)
def made(monkeypatch, tmp_path):
    """A tiny BERT, two tasks of two and three classes."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    transformers.BertModel(config).save_pretrained(folder)

    def read(name, _):
        classes = {"films": 2, "plots": 3}[name]
        generator = torch.Generator().manual_seed(classes)
        drawn = torch.randint(len(WORDS), (100, 6), generator=generator).tolist()
        texts = tuple(" ".join(WORDS[i] for i in row) + f" {WORDS[n % classes]}" for n, row in enumerate(drawn))
        return Corpus(texts, tuple(str(n % classes) for n in range(100)), None, (name,))

    monkeypatch.setattr(transfer, "read_text_set", read)
    monkeypatch.setattr(transfer, "small_encoder", lambda: folder)


def kept(path, scale=TINY):
    return Rows(path / "study.rows.jsonl", scale_settings(scale))


def test_every_kernel_is_judged_at_home_and_where_it_was_carried(tmp_path, monkeypatch):
    students = ("hedgehog", "favor")
    study = run_transfer(TINY, 1, kept(tmp_path), NOWHERE, students=students)
    judged = {(run["kernel"], run["source"]): list(run["accuracy"]) for run in study["runs"]}
    assert judged["softmax", "films"] == judged["favor", "films"] == ["films"]
    assert judged["hedgehog", "films"] == ["films", "plots"] and judged["hedgehog", "plots"] == ["plots", "films"]
    monkeypatch.setattr(transfer._Study, "run", lambda *_: pytest.fail("a finished run was run again"))
    again = run_transfer(TINY, 1, kept(tmp_path), NOWHERE, students=students)
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(study))


def test_only_kernels_are_carried_to_another_task(monkeypatch):
    """The head is fresh and the rest of the encoder as it was pretrained; the kernels are the distilled ones."""
    study = transfer._Study(TINY, NOWHERE)
    fresh, fitted = study._converted("hedgehog", ["a", "b"], 0), study._distilled("hedgehog", "films", 0)
    in_kernels = tuple(f"{path}." for path in kernels(fitted))
    before, after = fresh.state_dict(), fitted.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.startswith(in_kernels) for name in moved)
    begun = []
    monkeypatch.setattr(transfer, "train_classifier", lambda model, *_, **__: begun.append(model.state_dict()))
    study._finetuned(fitted, "hedgehog", "plots", 0)
    assert begun[0]["classifier.weight"].shape == (3, 16)
    assert all(torch.equal(begun[0][name], after[name]) for name in moved)


def test_weights_are_selected_on_texts_of_their_own():
    study = transfer._Study(dataclasses.replace(TINY, validation_texts=10, train_texts=None), NOWHERE)
    drawn = study._draw(study.tasks["films"], 0)
    assert (len(drawn.labels), len(drawn.validation_labels), len(drawn.task.labels)) == (70, 10, 20)
    assert 0 <= study._finetuned(None, "softmax", "films", 0) <= 1


def test_tables_tell_what_is_kept_and_what_is_lost():
    """Hedgehog loses 4 points out of domain, Flexformer_n 1 and keeps 99 % of the teacher."""
    scores = {"softmax": (0.8, None), "hedgehog": (0.8, 0.76), "flexformer_n": (0.792, 0.782)}
    runs = []
    for seed in range(3):
        for kernel, (at_home, carried) in scores.items():
            for here, there in (("films", "plots"), ("plots", "films")):
                away = {} if carried is None else {there: carried + 0.001 * seed}
                runs.append({"kernel": kernel, "source": here, "seed": seed, "accuracy": {here: at_home, **away}})
    study = {"settings": {"tasks": ["films", "plots"]}, "seeds": 3, "runs": runs}
    claims, table = claims_markdown(study), scores_markdown(study)
    assert "| 99.0 [99.0, 99.0] % | seen here |" in claims
    assert "| +3.0 [3.0, 3.0] points (flexformer_n +0.9, hedgehog +3.9) | seen here |" in claims
    assert "| hedgehog | another task | 0.761 | 0.761 | 0.7610 ± 0.0010 | 95.1 ± 0.1 % |" in table


def test_the_paper_scale_is_the_papers():
    scale = SCALES["paper"]
    assert (scale.distill_steps, scale.batch_size, scale.epochs, scale.learning_rate) == (20_000, 32, 10, 2e-5)
    assert len(scale.tasks) == 7 and "glue/mnli" in scale.tasks and scale.num_features == 64
