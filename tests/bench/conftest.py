"""A record of made-up figures, of the size and shape of a real one."""

from __future__ import annotations

import pytest
import torch

from kernelformer.bench.attention import LENGTHS, Timing, crossover
from kernelformer.bench.cost import Cost
from kernelformer.bench.record import Record
from kernelformer.bench.rows import Rows


@pytest.fixture
def record() -> Record:
    """A conversion of six layers; a test may change its copy."""
    return make_record()


def make_record() -> Record:
    """The same at every call."""
    generator = torch.Generator().manual_seed(0)
    cosines = (1 - 0.02 * torch.rand(1200, generator=generator) ** 2 - 0.004).tolist()
    steps = range(0, 400, 5)
    return {
        "teacher": "all-MiniLM-L6-v2",
        "student": "out/minilm-hedgehog",
        "kernel": "hedgehog",
        "num_features": 64,
        "options": {},
        "window": 0,
        "seed": 0,
        "finetune": "all",
        "layers": 6,
        "converted": 6,
        "parameters": 22_713_216,
        "kernel_parameters": 76_032,
        "versions": {"kernelformer": "0.1.0", "torch": "2.13.0+cpu", "transformers": "5.24.0"},
        "machine": "2 cores, Linux",
        "data": {
            "sources": ["rotten_tomatoes_corpus_full.csv.bz2"],
            "train_texts": 11594,
            "held_out_texts": 1200,
            "empty": 14,
            "unlabelled": 1083,
            "label_column": "category",
            "group_column": "movie_name",
            "max_length": 64,
            "full": 9,
        },
        "per_layer": [
            {
                "layer": layer,
                "error_start": 0.6 + 0.05 * layer,
                "error_distilled": 0.2 + 0.03 * layer,
                "error_finetuned": 0.18 + 0.02 * layer,
                "floored_share": 0.001 * layer,
            }
            for layer in range(6)
        ],
        "evaluation": {
            "agreement": {
                "texts": 1200,
                "cosine": sum(cosines) / len(cosines),
                "cosine_ci": (0.9886, 0.9893),
                "cosine_p05": 0.9781,
                "cosines": cosines,
                "neighbours": 0.842,
                "neighbours_ci": (0.836, 0.848),
                "neighbour_count": 10,
            },
            "cosine_by_stage": {"start": 0.31, "distilled": 0.957, "finetuned": 0.9893},
            "probe": {
                "teacher": 0.7725,
                "teacher_ci": (0.748, 0.795),
                "student": 0.7692,
                "student_ci": (0.744, 0.792),
                "majority": 0.591,
                "difference": -0.0033,
                "difference_ci": (-0.0133, 0.0067),
                "p": 0.61,
            },
            "probe_train_texts": 3000,
        },
        "language": None,
        "projections": [
            {
                "layer": 0,
                "before": [[0.0, 1.0], [1.0, 0.0]],
                "after": [[0.5, 1.0], [1.0, 0.5]],
                "lengths_before": [1.0, 1.0],
                "lengths_after": [1.1, 1.2],
            }
        ],
        "losses": {
            "distil": [(step, 0.5 / (1 + step / 20) + 0.05) for step in steps],
            "finetune": [(step, 0.05 / (1 + step / 60) + 0.004) for step in steps],
        },
        "cost": _cost(),
        "seconds": {"load": 1.9, "distil": 131.0, "finetune": 204.0, "evaluate": 35.0, "measure": 41.0},
    }


def _cost() -> Cost:
    attention = [timing(length, 2e-5 * length**2 + 0.1, 0.02 * length + 1) for length in LENGTHS]
    models = [timing(length, 0.09 * length + 4, 0.11 * length + 6) for length in LENGTHS[:3]]
    return {
        "threads": 2,
        "attention": attention,
        "attention_crossover": crossover(attention),
        "softmax_memory": {"mib": [0.0, 0.5, 1.1, 2.8, 3.9, 7.1, 13.3], "reason": None},
        "kernel_memory": {"mib": [1.5, 3.1, 6.2, 12.0, 24.2, 48.5, 97.2], "reason": None},
        "models": models,
        "models_crossover": crossover(models),
        "teacher_memory": {"mib": [1.9, 12.9, 20.8], "reason": None},
        "student_memory": {"mib": None, "reason": "the measurement took longer than 120 s"},
        "seconds": 41.0,
    }


def timing(length: int, softmax_ms: float, kernel_ms: float) -> Timing:
    """A row whose quartiles are ten percent off."""
    return {
        "length": length,
        "softmax_ms": softmax_ms,
        "kernel_ms": kernel_ms,
        "softmax_quartiles": (0.9 * softmax_ms, 1.1 * softmax_ms),
        "kernel_quartiles": (0.9 * kernel_ms, 1.1 * kernel_ms),
        "softmax_repeats": 9,
        "kernel_repeats": 9,
    }


@pytest.fixture
def kept(tmp_path):
    """Rows of a study that was not begun."""
    return Rows(tmp_path / "study.rows.jsonl", {})
