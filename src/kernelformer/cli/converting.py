"""The main job: teacher and texts in, a converted, distilled, measured student and its report out."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.cost import Cost, measure_cost
from kernelformer.bench.environment import environment, short_name
from kernelformer.bench.look import compare_clouds, converted_layers, projections
from kernelformer.bench.record import Evaluation, LanguageEvaluation, LayerError, Record
from kernelformer.bench.report import write_report
from kernelformer.cli.options import ConvertSettings
from kernelformer.cli.work import WorkFolder, check_numbers, held_out_texts, read_texts
from kernelformer.cli.yardsticks import EmbeddingYardstick, LikelihoodYardstick, Yardstick
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import find_feature_map
from kernelformer.hf import convert, extend_positions, find_sites, kernels
from kernelformer.hf.read import read_teacher, read_tokenizer
from kernelformer.learn import FINETUNE_MODES, Schedule, distill, finetune, layer_errors, start_from_data
from kernelformer.learn.finetuning import hidden_state_loss, logit_loss
from kernelformer.learn.statistics import START_BATCHES
from kernelformer.learn.trainer import KERNEL_SHARE, PRECISIONS
from kernelformer.tasks.batches import StepBatches, TokenisedTexts, batches, tokenise
from kernelformer.tasks.language import token_blocks
from kernelformer.tasks.text import Corpus, split

__all__ = ["Prepared", "Source", "describe", "prepare", "read", "run"]

_ERROR_TEXTS = 1200
"""Held-out texts, or blocks of a decoder, that errors of layers are measured on."""

_ERROR_TOKENS = 16_384
"""Tokens after which a decoder's are enough."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """Teacher and texts, read and checked: what all kernels with one seed share."""

    teacher: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus
    train: Corpus
    test: Corpus
    train_tokens: TokenisedTexts
    test_tokens: TokenisedTexts
    layers: int
    decodes: bool
    yardstick: Yardstick


@dataclass(frozen=True)
class Prepared(Source):
    """Everything before any work."""

    settings: ConvertSettings
    student: PreTrainedModel


def prepare(settings: ConvertSettings, source: Source | None = None) -> Prepared:
    """Read model and texts unless that was done, convert, and check every setting; nothing is written.

    Raises:
        KernelformerError: whatever cannot be met, in one line.
    """
    find_feature_map(settings.kernel)
    source = read(settings) if source is None else source
    student = convert(
        copy.deepcopy(source.teacher),
        settings.kernel,
        settings.num_features,
        settings.layer_numbers,
        options=settings.kernel_options,
        window=settings.window,
        seed=settings.seed,
    )
    if settings.max_positions is not None:
        extend_positions(student, settings.max_positions)
    return Prepared(**vars(source), settings=settings, student=student)


def read(settings: ConvertSettings) -> Source:
    """Read model and texts, and check all settings that are not the kernel's.

    Raises:
        KernelformerError: whatever cannot be met, in one line.
    """
    if settings.finetune not in FINETUNE_MODES:
        raise KernelformerError(f"finetune is one of {', '.join(FINETUNE_MODES)}, got {settings.finetune!r}")
    if settings.precision not in PRECISIONS:
        raise KernelformerError(f"precision is one of {', '.join(PRECISIONS)}, got {settings.precision!r}")
    for name in ("distill_steps", "finetune_steps", "batch_size"):
        if getattr(settings, name) < 1:
            raise KernelformerError(f"{name} must be at least 1, got {getattr(settings, name)}")
    check_numbers(settings.seed, settings.learning_rate, settings.kernel_learning_rate)
    corpus = read_texts(settings, settings.data, min_rows=20)
    train, test = _split(settings, corpus)
    teacher = read_teacher(settings.model)
    tokenizer = read_tokenizer(settings.model)
    sites = find_sites(teacher)
    decodes = any(site.causal for site in sites)
    positions = getattr(teacher.config, "max_position_embeddings", settings.max_length)
    max_length = min(settings.max_length, positions)
    cut = token_blocks if decodes else tokenise
    train_tokens, test_tokens = (cut(tokenizer, part.texts, max_length) for part in (train, test))
    yardstick: Yardstick = (
        LikelihoodYardstick(teacher, test_tokens, settings.seed)
        if decodes
        else EmbeddingYardstick(teacher, tokenizer, train, test, max_length, settings.seed)
    )
    return Source(teacher, tokenizer, corpus, train, test, train_tokens, test_tokens, len(sites), decodes, yardstick)


def _split(settings: ConvertSettings, corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Texts to train on and texts to judge by: those that were named, or some held out."""
    if not settings.test_data:
        return split(corpus, held_out=held_out_texts(settings, corpus), seed=settings.seed)
    test = read_texts(settings, settings.test_data)
    known = set(test.texts)
    return corpus.take([row for row, text in enumerate(corpus.texts) if text not in known]), test


def describe(prepared: Prepared) -> dict[str, str]:
    """What a run would do, in words."""
    settings = prepared.settings
    kernel = next(iter(kernels(prepared.student).values())).feature_map
    steps = [f"distil {settings.distill_steps} steps of {settings.batch_size} texts"]
    if settings.finetune != "none":
        steps.append(f"train {settings.finetune} for {settings.finetune_steps} steps")
    return {
        "model": f"{settings.model}: {type(prepared.teacher).__name__}, {prepared.layers} attention layers",
        "convert": (
            f"{len(kernels(prepared.student))} layers to {settings.kernel}, {kernel.num_features} features a head"
            + (f", softmax over the last {settings.window} tokens" if settings.window else "")
        ),
        "data": (
            f"{len(prepared.train):,} texts to train on, {len(prepared.test):,} held out, "
            f"cut to {prepared.train_tokens.max_length} tokens ({prepared.train_tokens.full:,} fill them)"
        ),
        "training": ", then ".join(steps),
        "judge": prepared.yardstick.figure,
        "measure": "time and memory at N = 128 … 8,192" if _measured(prepared) else "nothing",
        "write": settings.output,
    }


def run(prepared: Prepared, say: Say, *, overwrite: bool = False) -> Record:
    """Do the work, or go on with it where an interrupted run stopped, and write the output folder.

    Returns:
        The record that report.json holds.
    """
    settings = prepared.settings
    work = WorkFolder(settings, overwrite=overwrite)
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = call()
        seconds[name] = time.perf_counter() - begin
        return result

    say("looking at the teacher on the held-out texts")
    timed("teacher", prepared.yardstick.look_at_teacher)
    stages = _train(prepared, work, say, seconds)
    student = stages.student
    say("evaluating on held-out texts")
    evaluation, language, shares = timed("evaluate", lambda: _evaluate(prepared, student, stages.figures))
    final = work.path / "final"
    shutil.rmtree(final, ignore_errors=True)
    student.save_pretrained(final)
    if settings.max_positions is not None:
        prepared.tokenizer.model_max_length = settings.max_positions
    prepared.tokenizer.save_pretrained(final)
    cost = None
    if _measured(prepared):
        say("measuring time and memory")
        cost = timed("measure", lambda: _measure(prepared, student, final))
    record = _record(prepared, stages, (evaluation, language), shares, cost, seconds)
    write_report(final, record)
    work.finish(final)
    return record


@dataclass
class _Stages:
    student: PreTrainedModel
    errors: dict[str, list[float]]
    figures: dict[str, float]
    losses: dict[str, list[tuple[int, float]]]
    started: list[torch.Tensor]


def _train(prepared: Prepared, work: WorkFolder, say: Say, seconds: dict[str, float]) -> _Stages:
    """start, distilled, finetuned: each is kept when it is done."""
    settings = prepared.settings
    done = _Stages(prepared.student, {}, {}, {}, [])
    plan: list[tuple[str, str, Callable[[], list[tuple[int, float]]]]] = [
        ("start", "starting the kernels from the queries and keys of the data", lambda: _start(prepared, done.student)),
        ("distilled", "distilling the kernels layer by layer", lambda: _distill(prepared, done.student, work)),
        (
            "finetuned",
            "training the student to its teacher",
            lambda: _finetune(prepared, done.student, work),
        ),
    ]
    for name, words, train in plan[: 2 if settings.finetune == "none" else 3]:

        def stage(train: Callable[[], list[tuple[int, float]]] = train) -> dict[str, Any]:
            begin = time.perf_counter()
            losses = train()
            spent = time.perf_counter() - begin
            figure = prepared.yardstick.stage(done.student)
            return {"losses": losses, "seconds": spent, "errors": _errors(prepared, done.student), "figure": figure}

        say(words)
        done.student, facts = work.stage(name, done.student, stage)
        done.errors[name], done.figures[name], seconds[name] = facts["errors"], facts["figure"], facts["seconds"]
        done.losses[name] = [(int(step), float(loss)) for step, loss in facts["losses"]]
        if name == "start":
            done.started = projections(done.student)
        say(f"  {prepared.yardstick.figure}: {facts['figure']:.4f}")
    return done


def _start(prepared: Prepared, student: PreTrainedModel) -> list[tuple[int, float]]:
    chosen = StepBatches(
        prepared.train_tokens,
        prepared.tokenizer,
        prepared.settings.batch_size,
        steps=START_BATCHES,
        seed=prepared.settings.seed,
    )
    start_from_data(student, chosen)
    return []


def _distill(prepared: Prepared, student: PreTrainedModel, work: WorkFolder) -> list[tuple[int, float]]:
    schedule = _schedule(prepared, prepared.settings.distill_steps, 1.0)
    return distill(student, _batches(prepared, schedule), schedule, folder=work.checkpoints("distilled"))


def _finetune(prepared: Prepared, student: PreTrainedModel, work: WorkFolder) -> list[tuple[int, float]]:
    schedule = _schedule(prepared, prepared.settings.finetune_steps, KERNEL_SHARE)
    return finetune(
        student,
        prepared.teacher,
        _batches(prepared, schedule),
        schedule,
        mode=prepared.settings.finetune,
        objective=logit_loss if prepared.decodes else hidden_state_loss,
        folder=work.checkpoints("finetuned"),
    )


def _schedule(prepared: Prepared, steps: int, kernel_share: float) -> Schedule:
    settings = prepared.settings
    rate = settings.kernel_learning_rate
    if rate is None:
        rate = find_feature_map(settings.kernel).learning_rate
    return Schedule(
        steps=steps,
        learning_rate=settings.learning_rate,
        kernel_learning_rate=kernel_share * rate,
        precision=settings.precision,
        seed=settings.seed,
    )


def _batches(prepared: Prepared, schedule: Schedule) -> StepBatches:
    return StepBatches(
        prepared.train_tokens,
        prepared.tokenizer,
        prepared.settings.batch_size,
        steps=schedule.steps,
        seed=schedule.seed,
    )


def _errors(prepared: Prepared, student: PreTrainedModel) -> list[float]:
    texts = prepared.test_tokens
    most = _ERROR_TOKENS // texts.max_length if prepared.decodes else _ERROR_TEXTS
    held_out = batches(texts.first(most), prepared.tokenizer, 8 if prepared.decodes else 64, seed=0, shuffle=False)
    return layer_errors(student, (dict(batch) for batch in held_out))


def _evaluate(
    prepared: Prepared, student: PreTrainedModel, figures: dict[str, float]
) -> tuple[Evaluation | None, LanguageEvaluation | None, list[float]]:
    layers = kernels(student)
    for kernel in layers.values():
        kernel.reset_floored()
    prepared.yardstick.look_at_student(student)
    shares = [kernel.floored_share for kernel in layers.values()]
    return *prepared.yardstick.evaluate(student, figures), shares


def _measured(prepared: Prepared) -> bool:
    """Times are those of bidirectional layers; a decoder's are told by ``kernelformer bench``."""
    return prepared.settings.measure and not prepared.decodes


def _measure(prepared: Prepared, student: PreTrainedModel, final: Path) -> Cost:
    return measure_cost(
        prepared.teacher.cpu(),
        student.cpu(),
        teacher_folder=prepared.settings.model,
        student_folder=final,
        seed=prepared.settings.seed,
    )


def _record(
    prepared: Prepared,
    stages: _Stages,
    evaluations: tuple[Evaluation | None, LanguageEvaluation | None],
    shares: list[float],
    cost: Cost | None,
    seconds: dict[str, float],
) -> Record:
    settings, student = prepared.settings, stages.student
    found = list(kernels(student).values())
    layers = converted_layers(student)
    per_layer: list[LayerError] = [
        {
            "layer": layer,
            "error_start": stages.errors["start"][row],
            "error_distilled": stages.errors["distilled"][row],
            "error_finetuned": stages.errors["finetuned"][row] if "finetuned" in stages.errors else None,
            "floored_share": shares[row],
        }
        for row, layer in enumerate(layers)
    ]
    ran = environment()
    return {
        "teacher": short_name(settings.model),
        "student": settings.output,
        "kernel": settings.kernel,
        "num_features": found[0].feature_map.num_features,
        "options": settings.kernel_options,
        "window": settings.window,
        "seed": settings.seed,
        "finetune": settings.finetune,
        "layers": prepared.layers,
        "converted": len(found),
        "parameters": sum(parameter.numel() for parameter in student.parameters()),
        "kernel_parameters": sum(p.numel() for kernel in found for p in kernel.parameters()),
        "versions": ran["versions"],
        "machine": ran["machine"],
        "data": {
            "sources": [short_name(source) for source in (*settings.data, *settings.test_data)],
            "train_texts": len(prepared.train),
            "held_out_texts": len(prepared.test),
            "empty": prepared.corpus.empty,
            "unlabelled": prepared.corpus.unlabelled,
            "label_column": settings.label_column,
            "group_column": settings.group_column,
            "max_length": prepared.train_tokens.max_length,
            "full": prepared.train_tokens.full,
        },
        "per_layer": per_layer,
        "evaluation": evaluations[0],
        "language": evaluations[1],
        "losses": {name: curve for name, curve in stages.losses.items() if curve},
        "projections": compare_clouds(layers, stages.started, projections(student)),
        "cost": cost,
        "seconds": seconds,
    }
