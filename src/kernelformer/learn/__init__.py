"""Fitting the kernels of any model that holds kernel attention."""

from kernelformer.learn.distill import distill, layer_errors
from kernelformer.learn.finetune import FINETUNE_MODES, finetune
from kernelformer.learn.objectives import OutputError, WeightCrossEntropy
from kernelformer.learn.statistics import gather_moments, start_from_data
from kernelformer.learn.trainer import Schedule

__all__ = [
    "FINETUNE_MODES",
    "OutputError",
    "Schedule",
    "WeightCrossEntropy",
    "distill",
    "finetune",
    "gather_moments",
    "layer_errors",
    "start_from_data",
]
