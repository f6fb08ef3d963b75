"""Fitting the kernels of any model that holds kernel attention.

What trains with transformers' ``Trainer`` is imported when it is first asked for; the rest needs torch alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kernelformer.learn.curves import tensorboard
from kernelformer.learn.energy import (
    FourierAlignment,
    Riesz,
    autograd_drift,
    center,
    class_targets,
    pair_alignment,
    sign_targets,
    target_alignment,
)
from kernelformer.learn.langevin import Ball, Box, Dynamics, Langevin, measure_distance, resample
from kernelformer.learn.objectives import OutputError, WeightCrossEntropy
from kernelformer.learn.particles import AlignedOutputs, AlignSchedule, align, alignment_energies, particles_of
from kernelformer.learn.statistics import gather_moments, start_from_data

if TYPE_CHECKING:
    from kernelformer.learn.classify import align_and_train, train_classifier
    from kernelformer.learn.distillation import distill, layer_errors
    from kernelformer.learn.finetuning import FINETUNE_MODES, finetune
    from kernelformer.learn.trainer import Schedule, Selection

__all__ = [
    "FINETUNE_MODES",
    "AlignSchedule",
    "AlignedOutputs",
    "Ball",
    "Box",
    "Dynamics",
    "FourierAlignment",
    "Langevin",
    "OutputError",
    "Riesz",
    "Schedule",
    "Selection",
    "WeightCrossEntropy",
    "align",
    "align_and_train",
    "alignment_energies",
    "autograd_drift",
    "center",
    "class_targets",
    "distill",
    "finetune",
    "gather_moments",
    "layer_errors",
    "measure_distance",
    "pair_alignment",
    "particles_of",
    "resample",
    "sign_targets",
    "start_from_data",
    "target_alignment",
    "tensorboard",
    "train_classifier",
]

_HOMES = {
    "FINETUNE_MODES": "kernelformer.learn.finetuning",
    "Schedule": "kernelformer.learn.trainer",
    "Selection": "kernelformer.learn.trainer",
    "align_and_train": "kernelformer.learn.classify",
    "distill": "kernelformer.learn.distillation",
    "finetune": "kernelformer.learn.finetuning",
    "layer_errors": "kernelformer.learn.distillation",
    "train_classifier": "kernelformer.learn.classify",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernelformer.learn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
