"""kernelformer: linear-time attention whose kernel is learned."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kernelformer import engine, feature_maps, testing
from kernelformer.attention import KernelAttention
from kernelformer.engine import State
from kernelformer.errors import DataError, KernelformerError, ShapeError, UnsupportedModelError
from kernelformer.feature_maps import FEATURE_MAPS
from kernelformer.features import FeatureMap, Features, ProjectedFeatureMap

if TYPE_CHECKING:
    from kernelformer.hf import convert, load, split_sequence
    from kernelformer.learn import distill
    from kernelformer.learn.classifier import KernelClassifier

__version__ = "0.1.0"

__all__ = [
    "FEATURE_MAPS",
    "DataError",
    "FeatureMap",
    "Features",
    "KernelAttention",
    "KernelClassifier",
    "KernelformerError",
    "ProjectedFeatureMap",
    "ShapeError",
    "State",
    "UnsupportedModelError",
    "convert",
    "distill",
    "engine",
    "feature_maps",
    "load",
    "split_sequence",
    "testing",
]

# These need transformers or scikit-learn, and are imported when they are first asked for.
_HOMES = {
    "KernelClassifier": "kernelformer.learn.classifier",
    "convert": "kernelformer.hf",
    "distill": "kernelformer.learn",
    "load": "kernelformer.hf",
    "split_sequence": "kernelformer.hf",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernelformer' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        extra = "classifier" if name == "KernelClassifier" else "hf"
        raise ModuleNotFoundError(
            f"kernelformer.{name} needs {error.name}: pip install 'kernelformer[{extra}]'", name=error.name
        ) from error
