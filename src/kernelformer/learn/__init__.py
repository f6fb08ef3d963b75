"""Fitting the kernels of any model that holds kernel attention."""

from kernelformer.learn.distill import distill, layer_errors
from kernelformer.learn.energy import (
    FourierAlignment,
    Riesz,
    autograd_drift,
    center,
    class_targets,
    pair_alignment,
    sign_targets,
)
from kernelformer.learn.finetune import FINETUNE_MODES, finetune
from kernelformer.learn.langevin import Ball, Box, Dynamics, Langevin, measure_distance, resample
from kernelformer.learn.objectives import OutputError, WeightCrossEntropy
from kernelformer.learn.statistics import gather_moments, start_from_data
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
