"""kernelformer: linear-time attention whose kernel is learned."""

from kernelformer import engine, feature_maps, testing
from kernelformer.attention import KernelAttention
from kernelformer.engine import State
from kernelformer.errors import DataError, KernelformerError, ShapeError, UnsupportedModelError
from kernelformer.feature_maps import FEATURE_MAPS
from kernelformer.features import FeatureMap, Features, ProjectedFeatureMap

__version__ = "0.1.0"

__all__ = [
    "FEATURE_MAPS",
    "DataError",
    "FeatureMap",
    "Features",
    "KernelAttention",
    "KernelformerError",
    "ProjectedFeatureMap",
    "ShapeError",
    "State",
    "UnsupportedModelError",
    "engine",
    "feature_maps",
    "testing",
]
