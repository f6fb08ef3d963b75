"""Folders of runs, read as sections of one page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.look import attention_weights, converted_layers, kernel_shapes
from kernelformer.bench.page import Look, Section, classifier_section, conversion_section, study_section
from kernelformer.bench.record import SCHEMA
from kernelformer.cli.claims import CLAIMS
from kernelformer.cli.option_files import read_table
from kernelformer.errors import KernelformerError
from kernelformer.hf import convert, load
from kernelformer.hf.read import read_teacher, read_tokenizer

__all__ = ["read_run"]

_TOKENS = 24

Say = Callable[[str], None]


def read_run(folder: Path, text: str, say: Say, *, own_kernel: str | None = None) -> list[Section]:
    """The sections of a run: one a conversion, classifier or claim.

    Raises:
        KernelformerError: the folder holds no finished run.
    """
    if (folder / "report.json").is_file():
        return [_model_run(folder, text, say, own_kernel)]
    if (folder / "compare.json").is_file():
        return [_model_run(path.parent, text, say, own_kernel) for path in sorted(folder.glob("*/report.json"))]
    found = list(_studies(folder))
    if not found:
        raise KernelformerError(
            f"{folder} holds no finished run: name folders that convert, compare, align, train or reproduce wrote"
        )
    return found


def _model_run(folder: Path, text: str, say: Say, own_kernel: str | None) -> Section:
    say(f"looking at {folder}")
    try:
        record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise KernelformerError(f"{folder / 'report.json'} is not JSON: {error}") from error
    if "verb" in record:
        look = _look(folder, text, None, own_kernel) if record["kernel"] else None
        return classifier_section(f"{record['verb']}: {folder.name}", record, look)
    if record.pop("schema", None) != SCHEMA:
        raise KernelformerError(f"{folder / 'report.json'} is of another version of kernelformer: convert again")
    record.setdefault("projections", [])
    return conversion_section(folder.name, record, _look(folder, text, _teacher(folder), own_kernel))


def _studies(folder: Path) -> Iterator[Section]:
    for name, claim in CLAIMS.items():
        for stem in (claim.stem(name, scale) for scale in claim.scales):
            if (folder / f"{stem}.md").is_file():
                pictures = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{stem}-*.svg"))]
                tables = (folder / f"{stem}.md").read_text(encoding="utf-8")
                yield study_section(f"reproduce: {stem}", claim.summary, tables, pictures)


def _teacher(folder: Path) -> PreTrainedModel | None:
    """The model that was converted, where it can still be read."""
    options = folder / "options.toml"
    name = read_table(options).get("model") if options.is_file() else None
    if name is None:
        return None
    try:
        return read_teacher(str(name))
    except KernelformerError:
        return None


def _look(folder: Path, text: str, teacher: PreTrainedModel | None, own_kernel: str | None) -> Look:
    student = load(folder, own_kernel=own_kernel)
    tokenizer = read_tokenizer(str(folder))
    inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=_TOKENS)
    reference = "the teacher's softmax" if teacher is not None else "softmax of the student's own queries and keys"
    softmax = convert(teacher, "softmax") if teacher is not None else None
    layers = converted_layers(student)
    weights = attention_weights(student, inputs)
    compared = attention_weights(student if softmax is None else softmax, inputs, softmax=softmax is None)
    if softmax is not None:
        every = converted_layers(softmax)
        compared = [compared[every.index(layer)] for layer in layers]
    return Look(
        text=text,
        tokens=_words(tokenizer, inputs),
        reference=reference,
        layers=layers,
        student=_lists(weights),
        softmax=_lists(compared),
        shapes=kernel_shapes(student, inputs),
    )


def _words(tokenizer: PreTrainedTokenizerBase, inputs: Any) -> list[str]:
    ids = inputs["input_ids"][0].tolist()
    return [str(tokenizer.decode([number])).strip() or "␣" for number in ids]


def _lists(weights: list[torch.Tensor]) -> Any:
    return [layer.tolist() for layer in weights]
