"""Distilled kernels in and out of domain: fitted on texts of one task, then the whole model fine-tuned on another.

The protocol of Flexformer and Hedgehog on GLUE: on task A kernel parameters alone learn to give what the attention of
the pretrained encoder gives; then a fresh head and all weights train on A (in domain) or on B (out of domain). The
teacher is the same encoder with its softmax, fine-tuned alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.environment import environment
from kernelformer.bench.rows import Rows
from kernelformer.feature_maps import find_feature_map
from kernelformer.hf import BertForMeanClassification, convert, kernels
from kernelformer.hf.fresh import fresh_weights
from kernelformer.hf.read import read_classifier, read_tokenizer
from kernelformer.learn import Schedule, distill, start_from_data
from kernelformer.learn.classify import train_classifier
from kernelformer.learn.statistics import START_BATCHES
from kernelformer.learn.trainer import KERNEL_SHARE, Selection
from kernelformer.tasks.batches import StepBatches, TokenisedTexts, tokenise
from kernelformer.tasks.files import plain
from kernelformer.tasks.labelled import LabelledBatches, class_names, class_numbers, predict_probabilities
from kernelformer.tasks.packaged import small_encoder
from kernelformer.tasks.text import Corpus, split
from kernelformer.tasks.text_sets import read_text_set

__all__ = ["SCALES", "STUDENTS", "TransferScale", "run_transfer", "scale_settings"]

STUDENTS: Final = ("hedgehog", "flexformer_n", "darkformer", "favor")

_SPLIT_SEED: Final = 0


@dataclass(frozen=True)
class TransferScale:
    """The sizes and rates of a study.

    Attributes:
        model: folder or hub name of the encoder; None is the packaged all-MiniLM-L6-v2, its last states averaged.
        tasks: of ``TEXT_SETS``, in a circle.
        shifts: out of domain, the kernels come from the task so many places before.
        train_texts: at most, drawn anew for each seed; None is all but those held out.
        validation_texts: after each epoch they say which weights are kept; 0 keeps the last.
        test_texts: held out, by group, the same for all seeds.
        max_length: tokens a text, or pair, is cut to.
        num_features: of each head.
        distill_steps: batches that the kernels alone learn from, at their own rate.
        epochs, batch_size, learning_rate: of fine-tuning.
    """

    model: str | None
    tasks: tuple[str, ...]
    shifts: tuple[int, ...]
    train_texts: int | None
    validation_texts: int
    test_texts: int
    max_length: int
    num_features: int
    distill_steps: int
    epochs: int
    batch_size: int
    learning_rate: float


SCALES: Final = {
    "small": TransferScale(
        model=None,
        tasks=("rotten-tomatoes", "subjectivity", "valence", "reuters-8", "questions"),
        shifts=(1,),
        train_texts=640,
        validation_texts=0,
        test_texts=600,
        max_length=48,
        num_features=64,
        distill_steps=50,
        epochs=2,
        batch_size=32,
        learning_rate=1e-4,
    ),
    "paper": TransferScale(
        model="FacebookAI/roberta-base",
        tasks=tuple(f"glue/{task}" for task in ("cola", "sst2", "mrpc", "qqp", "mnli", "qnli", "rte")),
        shifts=(1, 2, 3, 4),
        train_texts=None,
        validation_texts=200,
        test_texts=250,
        max_length=128,
        num_features=64,
        distill_steps=20_000,
        epochs=10,
        batch_size=32,
        learning_rate=2e-5,
    ),
}
"""Flexformer's is "paper", on the classification tasks of GLUE; test texts are held out of GLUE's training texts."""


class _Task(NamedTuple):
    name: str
    rest: Corpus
    test: TokenisedTexts
    labels: list[int]
    classes: list[str]


class _Drawn(NamedTuple):
    """The texts of one task that one seed trains on and selects by."""

    task: _Task
    tokens: TokenisedTexts
    labels: list[int]
    validation: TokenisedTexts | None
    validation_labels: list[int]


def run_transfer(
    scale: TransferScale,
    seeds: int,
    kept: Rows,
    archives: Path,
    *,
    students: tuple[str, ...] = STUDENTS,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Fine-tune teacher and students on every task with every seed, but for what ``kept`` holds already.

    Args:
        archives: as ``read_text_set``.

    Returns:
        {"settings", "seeds", "machine", "versions", "runs": [a record each]}; a record holds "kernel" ("softmax" is
        the teacher), "source" (where the kernels were distilled), "seed", "seconds" and "accuracy" {task: on its test
        texts}, of the source itself and of those that its kernels were carried to.
    """
    study = _Study(scale, archives)
    wanted = {
        f"{kernel}, {source}, {seed}": partial(study.run, kernel, source, seed)
        for seed in range(seeds)
        for source in scale.tasks
        for kernel in ("softmax", *students)
    }
    records = list(kept.get_all(wanted, say).values())
    return {"settings": scale_settings(scale), "seeds": seeds, **environment(), "runs": records}


def scale_settings(scale: TransferScale) -> dict[str, Any]:
    """All of a scale, for JSON."""
    settings: dict[str, Any] = plain(asdict(scale))
    return settings


class _Study:
    """What all runs of one scale share."""

    def __init__(self, scale: TransferScale, archives: Path) -> None:
        self.scale = scale
        self.model = str(small_encoder()) if scale.model is None else scale.model
        self.tokenizer: PreTrainedTokenizerBase = read_tokenizer(self.model)
        self.tasks = {name: self._read(name, archives) for name in scale.tasks}

    def _read(self, name: str, archives: Path) -> _Task:
        rest, test = split(read_text_set(name, archives), held_out=self.scale.test_texts, seed=_SPLIT_SEED)
        classes = class_names(rest.labels or ())
        return _Task(name, rest, self._tokenise(test), class_numbers(test.labels or (), classes), classes)

    def _tokenise(self, corpus: Corpus) -> TokenisedTexts:
        return tokenise(self.tokenizer, corpus.texts, self.scale.max_length, corpus.pairs)

    def run(self, kernel: str, source: str, seed: int) -> dict[str, Any]:
        """One teacher on one task; or the kernels of one source, and what they are worth there and elsewhere."""
        begin = time.process_time()
        fitted = None if kernel == "softmax" else self._distilled(kernel, source, seed)
        targets = [source]
        # What has nothing to learn from a source is the same out of domain as in.
        if fitted is not None and any(True for kernel in kernels(fitted).values() for _ in kernel.parameters()):
            place = self.scale.tasks.index(source)
            targets += [self.scale.tasks[(place + shift) % len(self.scale.tasks)] for shift in self.scale.shifts]
        accuracy = {target: self._finetuned(fitted, kernel, target, seed) for target in targets}
        return {
            "kernel": kernel,
            "source": source,
            "seed": seed,
            "accuracy": accuracy,
            "seconds": time.process_time() - begin,
        }

    def _draw(self, task: _Task, seed: int) -> _Drawn:
        scale, train, validation = self.scale, task.rest, None
        if scale.validation_texts:
            train, validation = split(train, held_out=scale.validation_texts, seed=_SPLIT_SEED)
        if scale.train_texts is not None:
            train = train.sample(scale.train_texts, seed=seed)
        return _Drawn(
            task,
            self._tokenise(train),
            class_numbers(train.labels or (), task.classes),
            None if validation is None else self._tokenise(validation),
            [] if validation is None else class_numbers(validation.labels or (), task.classes),
        )

    def _classifier(self, classes: list[str], seed: int) -> PreTrainedModel:
        if self.scale.model is not None:
            return read_classifier(self.model, classes, seed=seed)
        with fresh_weights(seed):
            return BertForMeanClassification.from_pretrained(self.model, num_labels=len(classes))

    def _converted(self, kernel: str, classes: list[str], seed: int) -> PreTrainedModel:
        return convert(self._classifier(classes, seed), kernel, self.scale.num_features, seed=seed)

    def _distilled(self, kernel: str, source: str, seed: int) -> PreTrainedModel:
        scale, drawn = self.scale, self._draw(self.tasks[source], seed)
        student = self._converted(kernel, drawn.task.classes, seed)
        batches = StepBatches(drawn.tokens, self.tokenizer, scale.batch_size, steps=scale.distill_steps, seed=seed)
        start_from_data(student, batches[:START_BATCHES])
        rate = find_feature_map(kernel).learning_rate
        distill(student, batches, Schedule(steps=scale.distill_steps, kernel_learning_rate=rate, seed=seed))
        return student

    def _finetuned(self, fitted: PreTrainedModel | None, kernel: str, target: str, seed: int) -> float:
        """Accuracy on the target's test texts, of a model whose kernels begin as those of ``fitted``."""
        scale, drawn = self.scale, self._draw(self.tasks[target], seed)
        classes = drawn.task.classes
        model = self._classifier(classes, seed) if fitted is None else self._converted(kernel, classes, seed)
        if fitted is not None:
            for mine, found in zip(kernels(model).values(), kernels(fitted).values(), strict=True):
                mine.load_state_dict(found.state_dict())
        epoch = math.ceil(len(drawn.labels) / scale.batch_size)
        rate = 0.0 if fitted is None else find_feature_map(kernel).learning_rate
        schedule = Schedule(
            steps=scale.epochs * epoch,
            learning_rate=scale.learning_rate,
            kernel_learning_rate=KERNEL_SHARE * rate,
            betas=(0.9, 0.999),
            seed=seed,
        )
        batches = LabelledBatches(
            drawn.tokens, drawn.labels, self.tokenizer, scale.batch_size, steps=schedule.steps, seed=seed
        )
        train_classifier(model, batches, schedule, train_kernels=True, selection=self._selection(drawn, epoch))
        return self._accuracy(model, drawn.task.test, drawn.task.labels)

    def _selection(self, drawn: _Drawn, epoch: int) -> Selection | None:
        tokens = drawn.validation
        if tokens is None:
            return None
        return Selection(lambda model: self._accuracy(model, tokens, drawn.validation_labels), epoch)

    def _accuracy(self, model: Any, tokens: TokenisedTexts, labels: list[int]) -> float:
        found = predict_probabilities(model, tokens, self.tokenizer).argmax(1)
        return float((found == np.asarray(labels)).mean())
