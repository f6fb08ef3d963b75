"""What a report holds: the keys of ``report.json``, beside "schema", its format number.

Intervals are 95 %, [low, high]. None stands for what was not measured. Milliseconds and MiB are of batch 1
on the CPU without gradients. Stages are "start" (kernels with their start values), "distilled", "finetuned".
"""

from __future__ import annotations

from typing import Any, TypedDict

from kernelformer.bench.cost import Cost
from kernelformer.bench.look import Cloud
from kernelformer.tasks.embedding import Agreement
from kernelformer.tasks.language import Likelihood, Recall
from kernelformer.tasks.probing import ProbeDifference

__all__ = [
    "SCHEMA",
    "Data",
    "Evaluation",
    "LanguageEvaluation",
    "LayerError",
    "Record",
]

SCHEMA = 2
"""Raised when a key changes its meaning or goes away."""


class Data(TypedDict):
    """The texts.

    sources: as given. train_texts, held_out_texts: how many. empty, unlabelled: how many were dropped.
    label_column, group_column: or None. max_length: tokens. full: training texts that fill max_length.
    """

    sources: list[str]
    train_texts: int
    held_out_texts: int
    empty: int
    unlabelled: int
    label_column: str | None
    group_column: str | None
    max_length: int
    full: int


class LayerError(TypedDict):
    """Relative error of one layer's attention output on the real tokens of held-out texts, after each stage.

    floored_share: rows whose denominator met the floor, of the final model, 0 to 1.
    """

    layer: int
    error_start: float
    error_distilled: float | None
    error_finetuned: float | None
    floored_share: float


class Evaluation(TypedDict):
    """Held-out texts. agreement: of the final student with the teacher. cosine_by_stage: stage -> mean cosine.

    probe: None without labels. probe_train_texts: how many embeddings the probes were fitted on.
    """

    agreement: Agreement
    cosine_by_stage: dict[str, float]
    probe: ProbeDifference | None
    probe_train_texts: int | None


class LanguageEvaluation(TypedDict):
    """Held-out text, a decoder. perplexity_by_stage: stage -> perplexity of the first 32 blocks."""

    teacher: Likelihood
    student: Likelihood
    perplexity_by_stage: dict[str, float]
    teacher_recall: Recall
    student_recall: Recall


class Record(TypedDict):
    """One conversion.

    teacher, student: model names or folders, as shown. kernel, num_features, options: the feature map. window: of
    hybrid attention, 0 for none. evaluation: of an encoder, language: of a decoder; the other one is None.
    finetune: "none", "kernels", "qkv" or "all". layers, converted: attention layers, and how many were converted.
    parameters, kernel_parameters: of the student. versions: library -> version. machine: what it ran on, in words.
    losses: stage -> [[step, loss], ...]. projections: of the first, middle and last converted layer,
    empty where kernels have none. seconds: step of the work -> seconds, in order.
    """

    teacher: str
    student: str
    kernel: str
    num_features: int
    options: dict[str, Any]
    window: int
    seed: int
    finetune: str
    layers: int
    converted: int
    parameters: int
    kernel_parameters: int
    versions: dict[str, str]
    machine: str
    data: Data
    per_layer: list[LayerError]
    evaluation: Evaluation | None
    language: LanguageEvaluation | None
    losses: dict[str, list[tuple[int, float]]]
    projections: list[Cloud]
    cost: Cost | None
    seconds: dict[str, float]
