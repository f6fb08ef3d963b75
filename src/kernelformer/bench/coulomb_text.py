"""Kernels learned as particles against frozen ones and softmax: a small classifier of texts or pairs, from scratch.

Every row trains the paper's two-layer encoder on the same texts. "vanilla" rows freeze the random particles that a
kernel starts with; "kernel" rows first move them (phase A), then freeze them; all else of a pair is the same, the seed
of every draw included. The split is by group (a film, a document, a chapter) and the same for all seeds, so that runs
pair text by text; weights are selected by accuracy on validation texts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from transformers import AutoTokenizer, BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.environment import environment
from kernelformer.bench.rows import Rows
from kernelformer.hf import BertForMeanClassification, convert
from kernelformer.hf.fresh import fresh_weights
from kernelformer.learn.classify import train_classifier
from kernelformer.learn.energy import Riesz
from kernelformer.learn.langevin import Ball, Dynamics
from kernelformer.learn.particles import PAPER_DYNAMICS, AlignedOutputs, AlignSchedule, align
from kernelformer.learn.trainer import Schedule, Selection
from kernelformer.tasks.batches import TokenisedTexts, tokenise
from kernelformer.tasks.files import plain
from kernelformer.tasks.labelled import LabelledBatches, class_names, class_numbers, predict_probabilities
from kernelformer.tasks.metrics import classifier_metrics
from kernelformer.tasks.packaged import small_encoder
from kernelformer.tasks.text import split
from kernelformer.tasks.text_sets import read_text_set

__all__ = ["PAPER", "ROWS", "SCALES", "Row", "Scale", "build_classifier", "run_study", "scale_settings"]

_SPLIT_SEED: Final = 0


class Row(NamedTuple):
    """One classifier: its kernel, whether Q = K = reshape(x), whether phase A moves the particles."""

    name: str
    kernel: str
    shared_qk: bool
    aligned: bool


_PAIRED: Final = ("favor", "elu_projected", "softplus", "sigmoid2", "softmaxfeat", "cos2", "porf_softplus")

ROWS: Final = (
    Row("softmax", "softmax", False, False),
    Row("softmax, q = k = x", "softmax", True, False),
    Row("performer", "favor", False, False),
    *(Row(f"{word} {kernel}", kernel, True, word == "kernel") for kernel in _PAIRED for word in ("vanilla", "kernel")),
)

_SST2: Final = (
    *(0.8050, None, 0.7798, 0.8050, 0.7901, 0.8028, 0.8108, 0.8108, 0.8062),
    *(0.7959, 0.7924, 0.8005, 0.8085, 0.8142, 0.8119, 0.8142, 0.8188),
)
_QQP: Final = (
    *(0.8005, None, 0.7751, 0.7626, 0.7608, 0.7797, 0.7831, 0.7786, 0.7860),
    *(0.7772, 0.7852, 0.7801, 0.7909, 0.7746, 0.7842, 0.7782, 0.7841),
)
_ROTTEN_TOMATOES: Final = (
    *(0.6801, None, 0.6642, 0.7083, 0.6848, 0.6895, 0.7148, 0.7036, 0.7017),
    *(0.7026, 0.6876, 0.6782, 0.7167, 0.6876, 0.7092, 0.6839, 0.6989),
)

PAPER: Final = {
    texts: dict(zip((row.name for row in ROWS), found, strict=True))
    for texts, found in (("rotten-tomatoes", _ROTTEN_TOMATOES), ("valence", _SST2), ("verses", _QQP))
}
"""Set of texts -> row -> accuracy in tables 1 to 3 of arXiv 2607.23869: on its own split of Rotten Tomatoes, on SST-2
for "valence", on QQP for "verses"."""


@dataclass(frozen=True)
class Scale:
    """The sizes and rates of a study.

    Attributes:
        texts: one of ``PAPER``, and of ``TEXT_SETS``.
        train_texts: at most; None is all but those held out.
        validation_texts, test_texts: held out, by group.
        vocabulary: word pieces, trained on the training texts; None is BERT's 30,522.
        max_length: tokens a text is cut to.
        width, feed_forward: of the two layers of two heads.
        num_features: particles a head.
        epochs, batch_size, learning_rate, warmup: of phase B.
        align_epochs: of phase A.
        dynamics, objective, also: what phase A does.
    """

    texts: str
    train_texts: int | None
    validation_texts: int
    test_texts: int
    vocabulary: int | None
    max_length: int
    width: int
    feed_forward: int
    num_features: int
    epochs: int
    batch_size: int
    learning_rate: float
    warmup: float
    align_epochs: int
    dynamics: Dynamics
    objective: AlignedOutputs
    also: str = "nothing"


_REVIEWS: Final = {
    "small": Scale(
        texts="rotten-tomatoes",
        train_texts=6000,
        validation_texts=1200,
        test_texts=2400,
        vocabulary=6000,
        max_length=24,
        width=128,
        feed_forward=256,
        num_features=64,
        epochs=2,
        batch_size=64,
        learning_rate=1e-3,
        warmup=0.05,
        align_epochs=1,
        dynamics=Dynamics(10.0, 1e6, Riesz(0.0), 1e-3, Ball(12.0), 0.1),
        objective=AlignedOutputs(normalised=True),
    ),
    "paper": Scale(
        texts="rotten-tomatoes",
        train_texts=None,
        validation_texts=1066,
        test_texts=1066,
        vocabulary=None,
        max_length=128,
        width=128,
        feed_forward=256,
        num_features=256,
        epochs=10,
        batch_size=64,
        learning_rate=2e-4,
        warmup=0.0,
        align_epochs=10,
        dynamics=PAPER_DYNAMICS,
        objective=AlignedOutputs(),
    ),
}

SCALES: Final = {
    "rotten-tomatoes": _REVIEWS,
    "valence": {name: replace(scale, texts="valence") for name, scale in _REVIEWS.items()},
    "verses": {
        "small": replace(_REVIEWS["small"], texts="verses", train_texts=15000, max_length=48, epochs=1),
        "paper": replace(_REVIEWS["paper"], texts="verses"),
    },
}
"""Set of texts -> name -> sizes. The scale "paper" has the sizes and rates that the paper prints."""


class _Part(NamedTuple):
    tokens: TokenisedTexts
    labels: list[int]


class _Texts(NamedTuple):
    tokenizer: PreTrainedTokenizerBase
    train: _Part
    validation: _Part
    test: _Part


def run_study(
    scale: Scale,
    seeds: int,
    kept: Rows,
    archives: Path,
    *,
    rows: Sequence[Row] = ROWS,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train every row with every seed, but for the runs that ``kept`` holds already.

    Args:
        archives: as ``read_text_set``.

    Returns:
        {"settings", "seeds", "texts", "machine", "versions", "labels": [n] of the test texts, "runs": [a record a
        run]}; a record holds "row", "seed", "metrics", "positive" ([n], the probability of the second class),
        "validation" (accuracy after each epoch), "seconds" (of the CPU) and, where particles moved, "energies"
        ((step, energy)).
    """
    texts = _read_texts(scale, archives)
    runs = {f"{row.name}, {seed}": partial(_run, row, seed, scale, texts) for seed in range(seeds) for row in rows}
    records = list(kept.get_all(runs, say).values())
    return {
        "settings": scale_settings(scale),
        "seeds": seeds,
        "texts": {name: len(getattr(texts, name).labels) for name in ("train", "validation", "test")},
        **environment(),
        "labels": texts.test.labels,
        "runs": records,
    }


def scale_settings(scale: Scale) -> dict[str, Any]:
    """All of a scale, for JSON."""
    settings: dict[str, Any] = plain(asdict(scale))
    return settings


def build_classifier(
    vocabulary: int, labels: int, *, width: int = 128, feed_forward: int = 256, max_length: int = 128, seed: int = 0
) -> BertForMeanClassification:
    """The paper's encoder, fresh: two layers of two heads, mean pooling; softmax attention until it is converted."""
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=feed_forward,
        max_position_embeddings=max_length,
    )
    config.num_labels = labels
    with fresh_weights(seed):
        return BertForMeanClassification(config)


def _run(row: Row, seed: int, scale: Scale, texts: _Texts) -> dict[str, Any]:
    model = _model(row, seed, scale, texts)
    seconds: dict[str, float] = {}
    energies: list[tuple[int, float]] = []
    if row.aligned:
        begin = time.process_time()
        batches = _batches(texts, scale, scale.align_epochs, seed)
        length = AlignSchedule(steps=len(batches), also=scale.also, seed=seed)
        energies = align(model, batches, scale.dynamics, length, objective=scale.objective)
        seconds["align"] = time.process_time() - begin
    begin = time.process_time()
    batches = _batches(texts, scale, scale.epochs, seed)
    scores: list[float] = []

    def score(model: Any) -> float:
        found = predict_probabilities(model, texts.validation.tokens, texts.tokenizer)
        scores.append(float((found.argmax(1) == np.asarray(texts.validation.labels)).mean()))
        return scores[-1]

    schedule = Schedule(
        steps=len(batches),
        learning_rate=scale.learning_rate,
        betas=(0.9, 0.999),
        warmup=scale.warmup,
        precision="float32",
        seed=seed,
    )
    train_classifier(model, batches, schedule, selection=Selection(score, len(batches) // scale.epochs))
    seconds["train"] = time.process_time() - begin
    probabilities = predict_probabilities(model, texts.test.tokens, texts.tokenizer)
    return {
        "row": row.name,
        "seed": seed,
        "metrics": classifier_metrics(probabilities, texts.test.labels),
        "validation": scores,
        "seconds": seconds,
        "energies": energies,
        "positive": [round(value, 6) for value in probabilities[:, 1].tolist()],
    }


def _model(row: Row, seed: int, scale: Scale, texts: _Texts) -> PreTrainedModel:
    model = build_classifier(
        len(texts.tokenizer),
        2,
        width=scale.width,
        feed_forward=scale.feed_forward,
        max_length=scale.max_length,
        seed=seed,
    )
    # Frozen in both rows of a pair: phase A moves what the optimiser of phase B never sees.
    options = {} if row.kernel in ("softmax", "favor") else {"trainable": False}
    width = None if row.kernel == "softmax" else scale.num_features
    return convert(model, row.kernel, width, options=options, shared_qk=row.shared_qk, seed=seed)


def _batches(texts: _Texts, scale: Scale, epochs: int, seed: int) -> LabelledBatches:
    steps = epochs * math.ceil(len(texts.train.labels) / scale.batch_size)
    return LabelledBatches(
        texts.train.tokens, texts.train.labels, texts.tokenizer, scale.batch_size, steps=steps, seed=seed
    )


def _read_texts(scale: Scale, archives: Path) -> _Texts:
    rest, test = split(read_text_set(scale.texts, archives), held_out=scale.test_texts, seed=_SPLIT_SEED)
    train, validation = split(rest, held_out=scale.validation_texts, seed=_SPLIT_SEED)
    if scale.train_texts is not None:
        train = train.sample(scale.train_texts, seed=_SPLIT_SEED)
    tokenizer: Any = AutoTokenizer.from_pretrained(small_encoder(), trust_remote_code=False)
    if scale.vocabulary is not None:
        tokenizer = tokenizer.train_new_from_iterator(
            [*train.texts, *(train.pairs or ())], scale.vocabulary, show_progress=False
        )
    names = class_names(train.labels or ())
    parts = [
        _Part(tokenise(tokenizer, part.texts, scale.max_length, part.pairs), class_numbers(part.labels or (), names))
        for part in (train, validation, test)
    ]
    return _Texts(tokenizer, *parts)
