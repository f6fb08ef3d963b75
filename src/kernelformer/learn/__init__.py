"""Fitting the kernels of any model that holds kernel attention.

What trains with transformers' ``Trainer`` is imported when it is first asked for; the rest needs torch alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kernelformer.learn.energy import (
    FourierAlignment,
    Riesz,
    autograd_drift,
    center,
    class_targets,
    pair_alignment,
    sign_targets,
)
from kernelformer.learn.langevin import Ball, Box, Dynamics, Langevin, measure_distance, resample
from kernelformer.learn.objectives import OutputError, WeightCrossEntropy
from kernelformer.learn.statistics import gather_moments, start_from_data

if TYPE_CHECKING:
    from kernelformer.learn.distill import distill, layer_errors
    from kernelformer.learn.finetune import FINETUNE_MODES, finetune
    from kernelformer.learn.trainer import Schedule

__all__ = [
    "FINETUNE_MODES",
    "Ball",
    "Box",
    "Dynamics",
    "FourierAlignment",
    "Langevin",
    "OutputError",
    "Riesz",
    "Schedule",
    "WeightCrossEntropy",
    "autograd_drift",
    "center",
    "class_targets",
    "distill",
    "finetune",
    "gather_moments",
    "layer_errors",
    "measure_distance",
    "pair_alignment",
    "resample",
    "sign_targets",
    "start_from_data",
]

_HOMES = {
    "FINETUNE_MODES": "kernelformer.learn.finetune",
    "Schedule": "kernelformer.learn.trainer",
    "distill": "kernelformer.learn.distill",
    "finetune": "kernelformer.learn.finetune",
    "layer_errors": "kernelformer.learn.distill",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernelformer.learn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
