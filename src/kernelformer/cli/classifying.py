"""What ``align`` and ``train`` share: a classifier and labelled texts in, the changed classifier and its record out."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.coulomb_text import build_classifier
from kernelformer.bench.environment import environment, short_name
from kernelformer.bench.look import compare_clouds, converted_layers
from kernelformer.cli.options import AlignSettings, TrainSettings
from kernelformer.cli.work import WorkFolder, check_numbers, held_out_texts, read_texts
from kernelformer.errors import KernelformerError
from kernelformer.hf import convert, kernels
from kernelformer.hf.read import name_classes, read_classifier, read_tokenizer
from kernelformer.learn.classify import train_classifier
from kernelformer.learn.energy import Riesz, center, class_targets
from kernelformer.learn.langevin import Ball, Dynamics
from kernelformer.learn.particles import ALSO, AlignedOutputs, AlignSchedule, align, alignment_energies, particles_of
from kernelformer.learn.trainer import PRECISIONS, Schedule, Selection
from kernelformer.tasks.batches import TokenisedTexts, tokenise
from kernelformer.tasks.files import write_json
from kernelformer.tasks.labelled import LabelledBatches, class_names, class_numbers, predict_probabilities
from kernelformer.tasks.metrics import classifier_metrics
from kernelformer.tasks.text import Corpus, split

__all__ = ["FRESH", "LEVELS", "PreparedClassifier", "describe", "prepare", "run"]

FRESH = {"small": {"width": 128, "feed_forward": 256}}
"""Fresh classifiers by name: two layers of two heads, mean pooling, as in arXiv 2607.23869."""

LEVELS = ("sequence", "token")

Settings = AlignSettings | TrainSettings

Say = Callable[[str], None]


class _Part(NamedTuple):
    tokens: TokenisedTexts
    labels: list[int]


@dataclass(frozen=True)
class PreparedClassifier:
    """What was read and checked before any work. Held-out texts: ``validation`` selects weights, ``test`` is scored."""

    settings: Settings
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    classes: list[str]
    train: _Part
    validation: _Part
    test: _Part


def prepare(settings: Settings) -> PreparedClassifier:
    """Read model and texts, and check every setting; nothing is written.

    Raises:
        KernelformerError: whatever cannot be met, in one line.
    """
    _check(settings)
    corpus = read_texts(settings, settings.data, min_rows=20, pair_column=settings.pair_column)
    held_out = held_out_texts(settings, corpus)
    rest, test = split(corpus, held_out=held_out, seed=settings.seed)
    train, validation = split(rest, held_out=held_out, seed=settings.seed)
    classes = class_names(train.labels or ())
    tokenizer = read_tokenizer(settings.model)
    model = _model(settings, classes, tokenizer)
    max_length = min(settings.max_length, getattr(model.config, "max_position_embeddings", settings.max_length))

    def part(corpus: Corpus) -> _Part:
        tokens = tokenise(tokenizer, corpus.texts, max_length, corpus.pairs)
        return _Part(tokens, class_numbers(corpus.labels or (), classes))

    return PreparedClassifier(settings, model, tokenizer, classes, part(train), part(validation), part(test))


def describe(prepared: PreparedClassifier) -> dict[str, str]:
    """What a run would do, in words."""
    settings, found = prepared.settings, list(kernels(prepared.model).values())
    attention = "softmax attention"
    if found:
        feature_map = found[0].feature_map
        attention = f"{len(found)} layers of {type(feature_map).__name__}, {feature_map.num_features} features a head"
    if isinstance(settings, AlignSettings):
        count = particles_of(prepared.model).shape
        work = f"{settings.steps} steps of {count[0] * count[1]} heads of {count[2]} particles, {settings.level} level"
    else:
        frozen = "" if settings.train_kernels or not found else ", kernels frozen"
        work = f"{settings.epochs} epochs of {_epoch(prepared)} steps{frozen}"
    return {
        "model": f"{settings.model}: {type(prepared.model).__name__}, {attention}",
        "classes": ", ".join(prepared.classes),
        "data": (
            f"{len(prepared.train.labels):,} texts to train on, {len(prepared.validation.labels):,} to "
            f"select by, {len(prepared.test.labels):,} to test"
        ),
        "training": f"{work}, batches of {settings.batch_size}",
        "write": settings.output,
    }


def run(prepared: PreparedClassifier, say: Say, *, overwrite: bool = False) -> dict[str, Any]:
    """Do the work, or go on with it where an interrupted run stopped, and write the output folder.

    Returns:
        The record that report.json holds.
    """
    settings = prepared.settings
    work = WorkFolder(settings, overwrite=overwrite, read=lambda folder: _read(settings, str(folder), prepared.classes))
    if isinstance(settings, AlignSettings):
        verb, stage = "align", partial(_align, prepared, settings)
    else:
        verb, stage = "train", partial(_train, prepared, settings)
    kept = work.checkpoints(verb)
    model, facts = work.stage(verb, prepared.model, lambda: stage(kept, say))
    final = work.path / "final"
    shutil.rmtree(final, ignore_errors=True)
    model.save_pretrained(final)
    prepared.tokenizer.save_pretrained(final)
    record = _record(prepared, model) | facts
    write_json(final / "report.json", record)
    work.finish(final)
    return record


def _check(settings: Settings) -> None:
    check_numbers(settings.seed, settings.learning_rate)
    counts = {"batch_size": settings.batch_size}
    choices = {"fresh": (settings.fresh, (None, *FRESH))}
    if isinstance(settings, AlignSettings):
        counts["steps"] = settings.steps
        choices |= {"also": (settings.also, ALSO), "level": (settings.level, LEVELS)}
        _dynamics(settings)
    else:
        counts["epochs"] = settings.epochs
        choices["precision"] = (settings.precision, PRECISIONS)
    for name, number in counts.items():
        if number < 1:
            raise KernelformerError(f"{name} must be at least 1, got {number}")
    for name, (given, known) in choices.items():
        if given not in known:
            raise KernelformerError(f"{name} is one of {', '.join(filter(None, known))}, got {given!r}")


def _model(settings: Settings, classes: list[str], tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    if settings.fresh is None:
        model = _read(settings, settings.model, classes)
    else:
        model = build_classifier(
            len(tokenizer), len(classes), max_length=settings.max_length, seed=settings.seed, **FRESH[settings.fresh]
        )
        name_classes(model, classes)
    converted = getattr(model.config, "kernelized", None)
    if converted:
        if settings.kernel not in (None, converted["kernel"]):
            raise KernelformerError(
                f"{settings.model} has kernel {converted['kernel']!r} already: leave --kernel out, or give the original"
            )
    elif settings.kernel is not None or isinstance(settings, AlignSettings):
        model = convert(
            model,
            settings.kernel or "softmaxfeat",
            settings.num_features,
            settings.layer_numbers,
            options=settings.kernel_options,
            shared_qk=settings.shared_qk,
            seed=settings.seed,
        )
    elif settings.shared_qk:
        raise KernelformerError("shared_qk needs a kernel: give --kernel softmax for softmax attention")
    if isinstance(settings, AlignSettings):
        particles_of(model)  # refuses kernels without particles
    return model


def _read(settings: Settings, name: str, classes: list[str]) -> PreTrainedModel:
    return read_classifier(name, classes, own_kernel=settings.own_kernel, seed=settings.seed)


def _dynamics(settings: AlignSettings) -> Dynamics:
    return Dynamics(
        step_size=settings.step_size,
        inverse_temperature=settings.inverse_temperature,
        repulsion=Riesz(settings.exponent),
        repulsion_weight=settings.repulsion_weight,
        domain=Ball(settings.max_norm),
        max_drift=settings.max_drift,
    )


def _epoch(prepared: PreparedClassifier) -> int:
    return math.ceil(len(prepared.train.labels) / prepared.settings.batch_size)


def _batches(prepared: PreparedClassifier, part: _Part, steps: int, batch_size: int) -> LabelledBatches:
    return LabelledBatches(
        part.tokens, part.labels, prepared.tokenizer, batch_size, steps=steps, seed=prepared.settings.seed
    )


def _align(prepared: PreparedClassifier, settings: AlignSettings, folder: Path, say: Say) -> dict[str, Any]:
    model = prepared.model
    objective = AlignedOutputs(token_level=settings.level == "token", normalised=settings.normalised)
    dynamics = _dynamics(settings)
    schedule = AlignSchedule(
        steps=settings.steps,
        tolerance=settings.tolerance,
        also=settings.also,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
    )
    start, before = particles_of(model), _energies(prepared, objective)
    say("aligning the particles of every head with the labels")
    begin = time.perf_counter()
    batches = _batches(prepared, prepared.train, settings.steps, settings.batch_size)
    curve = align(model, batches, dynamics, schedule, objective=objective, folder=folder)
    seconds = time.perf_counter() - begin
    moved, after = particles_of(model), _energies(prepared, objective)
    return {
        "curve": curve,
        "held_out_energy": {"before": before, "after": after},
        "nearest_pair": {"before": _nearest(start), "after": _nearest(moved)},
        "projections": compare_clouds(converted_layers(model), list(start.mT), list(moved.mT)),
        "mean_move": float((moved - start).norm(dim=-1).mean()),
        "seconds": seconds,
    }


def _train(prepared: PreparedClassifier, settings: TrainSettings, folder: Path, say: Say) -> dict[str, Any]:
    model = prepared.model
    scores: list[float] = []

    def score(model: Any) -> float:
        found = predict_probabilities(model, prepared.validation.tokens, prepared.tokenizer)
        scores.append(float((found.argmax(1) == np.asarray(prepared.validation.labels)).mean()))
        return scores[-1]

    schedule = Schedule(
        steps=settings.epochs * _epoch(prepared),
        learning_rate=settings.learning_rate,
        kernel_learning_rate=settings.kernel_learning_rate,
        precision=settings.precision,
        seed=settings.seed,
    )
    say("training the classifier")
    begin = time.perf_counter()
    losses = train_classifier(
        model,
        _batches(prepared, prepared.train, schedule.steps, settings.batch_size),
        schedule,
        train_kernels=settings.train_kernels,
        selection=Selection(score, _epoch(prepared)),
        folder=folder,
    )
    seconds = time.perf_counter() - begin
    found = predict_probabilities(model, prepared.test.tokens, prepared.tokenizer)
    return {
        "losses": losses,
        "validation_accuracy": scores,
        "test": classifier_metrics(found, prepared.test.labels),
        "seconds": seconds,
    }


@torch.no_grad()
def _energies(prepared: PreparedClassifier, objective: AlignedOutputs) -> float:
    """The alignment's energy on validation texts, mean over layers and heads."""
    model = prepared.model.eval()
    batch = dict(_batches(prepared, prepared.validation, 1, min(512, len(prepared.validation.labels)))[0])
    targets = center(class_targets(batch.pop("labels"), len(prepared.classes)))
    return float(alignment_energies(model, particles_of(model), batch, targets, objective).mean())


def _nearest(particles: torch.Tensor) -> float:
    """The smallest distance of two particles of one head."""
    if particles.shape[-2] < 2:
        return math.inf
    return min(float(torch.pdist(head).min()) for head in particles.flatten(0, 1))


def _record(prepared: PreparedClassifier, model: PreTrainedModel) -> dict[str, Any]:
    settings = prepared.settings
    record = getattr(model.config, "kernelized", None)
    return {
        "verb": "align" if isinstance(settings, AlignSettings) else "train",
        "model": short_name(settings.model),
        "fresh": settings.fresh,
        "kernel": record["kernel"] if record else None,
        "shared_qk": bool(record and record.get("shared_qk", False)),
        "classes": prepared.classes,
        "texts": {name: len(getattr(prepared, name).labels) for name in ("train", "validation", "test")},
        "sources": [short_name(source) for source in settings.data],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seed": settings.seed,
        **environment(),
    }
