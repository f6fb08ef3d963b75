"""Time and memory of teacher and student together: attention layers at every length, models within their positions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch
from transformers import PreTrainedModel

from kernelformer.bench.attention import LENGTHS, Timing, crossover, time_attention, time_models
from kernelformer.bench.memory import Memory, attention_memory, model_memory
from kernelformer.bench.spec import AttentionSpec

__all__ = ["Cost", "measure_cost"]


class Cost(TypedDict):
    """What was measured; the memory lists go with the lengths of the timings beside them.

    The crossovers are lengths from which the kernel wins in time, None where it does not.
    """

    threads: int
    attention: list[Timing]
    attention_crossover: float | None
    softmax_memory: Memory
    kernel_memory: Memory
    models: list[Timing]
    models_crossover: float | None
    teacher_memory: Memory
    student_memory: Memory
    seconds: float


def measure_cost(
    teacher: PreTrainedModel,
    student: PreTrainedModel,
    *,
    teacher_folder: str | Path,
    student_folder: str | Path,
    lengths: Sequence[int] = LENGTHS,
    seconds: float = 40.0,
    seed: int = 0,
) -> Cost:
    """Measure both.

    Args:
        teacher, student: on the CPU; the student converted.
        teacher_folder, student_folder: where other processes load the same models from.
        lengths: of the attention layers alone; models run at the powers of two within the teacher's positions.
        seconds: about what the timings take together; the memory, in four processes, comes on top.
    """
    start = time.perf_counter()
    spec = AttentionSpec.of_record(student.config.kernelized)
    attention = time_attention(spec, lengths=lengths, seconds=0.7 * seconds, seed=seed)
    models = time_models(teacher, student, seconds=0.2 * seconds, seed=seed)
    softmax_memory, kernel_memory = attention_memory(spec, lengths, seed=seed)
    known = [row["length"] for row in models]
    return {
        "threads": torch.get_num_threads(),
        "attention": attention,
        "attention_crossover": crossover(attention),
        "softmax_memory": softmax_memory,
        "kernel_memory": kernel_memory,
        "models": models,
        "models_crossover": crossover(models),
        "teacher_memory": model_memory(teacher_folder, known, seed=seed),
        "student_memory": model_memory(
            student_folder, known, own_kernel=student.config.kernelized["kernel"], seed=seed
        ),
        "seconds": time.perf_counter() - start,
    }
