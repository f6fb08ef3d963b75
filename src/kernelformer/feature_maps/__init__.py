"""A file a map; ``FEATURE_MAPS`` gives each class its name."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from kernelformer.errors import KernelformerError
from kernelformer.feature_maps.constant import Constant
from kernelformer.feature_maps.cos2 import Cos2
from kernelformer.feature_maps.cosformer import Cosformer
from kernelformer.feature_maps.darkformer import Darkformer
from kernelformer.feature_maps.dense_exponential import DenseExponential
from kernelformer.feature_maps.dpfp import Dpfp
from kernelformer.feature_maps.elu import Elu
from kernelformer.feature_maps.elu_projected import EluProjected
from kernelformer.feature_maps.favor import Favor
from kernelformer.feature_maps.flexformer_n import FlexformerN
from kernelformer.feature_maps.flexformer_s import FlexformerS
from kernelformer.feature_maps.hedgehog import Hedgehog
from kernelformer.feature_maps.hyperbolic import Hyperbolic
from kernelformer.feature_maps.lfk import Lfk
from kernelformer.feature_maps.oprf import Oprf
from kernelformer.feature_maps.polaformer import Polaformer
from kernelformer.feature_maps.porf_softplus import PorfSoftplus
from kernelformer.feature_maps.random_weights import Random
from kernelformer.feature_maps.registry import find_in
from kernelformer.feature_maps.relu import Relu
from kernelformer.feature_maps.rfa import Rfa
from kernelformer.feature_maps.rfa_gated import RfaGated
from kernelformer.feature_maps.sigmoid2 import Sigmoid2
from kernelformer.feature_maps.softmax import Softmax
from kernelformer.feature_maps.softmax_sampling import SoftmaxSampling
from kernelformer.feature_maps.softmaxfeat import Softmaxfeat
from kernelformer.feature_maps.softplus import Softplus
from kernelformer.feature_maps.taylor import Taylor
from kernelformer.features import FeatureMap

__all__ = [
    "FEATURE_MAPS",
    "Constant",
    "Cos2",
    "Cosformer",
    "Darkformer",
    "DenseExponential",
    "Dpfp",
    "Elu",
    "EluProjected",
    "Favor",
    "FlexformerN",
    "FlexformerS",
    "Hedgehog",
    "Hyperbolic",
    "Lfk",
    "Oprf",
    "Polaformer",
    "PorfSoftplus",
    "Random",
    "Relu",
    "Rfa",
    "RfaGated",
    "Sigmoid2",
    "Softmax",
    "SoftmaxSampling",
    "Softmaxfeat",
    "Softplus",
    "Taylor",
    "build_feature_map",
    "find_feature_map",
]

FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    "constant": Constant,
    "cos2": Cos2,
    "cosformer": Cosformer,
    "darkformer": Darkformer,
    "dense_exponential": DenseExponential,
    "dpfp": Dpfp,
    "elu": Elu,
    "elu_projected": EluProjected,
    "favor": Favor,
    "flexformer_n": FlexformerN,
    "flexformer_s": FlexformerS,
    "hedgehog": Hedgehog,
    "hyperbolic": Hyperbolic,
    "lfk": Lfk,
    "oprf": Oprf,
    "polaformer": Polaformer,
    "porf_softplus": PorfSoftplus,
    "random": Random,
    "relu": Relu,
    "rfa": Rfa,
    "rfa_gated": RfaGated,
    "sigmoid2": Sigmoid2,
    "softmax_sampling": SoftmaxSampling,
    "softmaxfeat": Softmaxfeat,
    "softplus": Softplus,
    "taylor": Taylor,
}


def find_feature_map(name: str) -> type[FeatureMap]:
    """The class of a kernel: a name of ``FEATURE_MAPS``, "softmax", or "module:Class" for a user's own.

    Raises:
        KernelformerError: no such name (the near ones are given), or no such class.
    """
    return find_in({**FEATURE_MAPS, "softmax": Softmax}, name)


def build_feature_map(
    name: str,
    head_dim: int,
    num_heads: int,
    num_features: int | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> FeatureMap:
    """A fresh map of this kernel, drawn from ``seed``; without ``num_features`` of the map's own width.

    Raises:
        KernelformerError: no such kernel, or options that it does not take.
    """
    kind: Any = find_feature_map(name)
    arguments = dict(options or {})
    if num_features is not None:
        arguments["num_features"] = num_features
    generator = torch.Generator(device="cpu").manual_seed(seed)
    try:
        built: FeatureMap = kind(head_dim, num_heads, generator=generator, **arguments)
    except TypeError as error:
        raise KernelformerError(f"kernel {name!r} was given options it does not take: {error}") from error
    return built


def width_for(name: str, num_features: int | None) -> int | None:
    """The ``num_features`` to build this kernel with: None where the head decides it."""
    return None if fixed_width(name) else num_features


def fixed_width(name: str) -> bool:
    """Whether the head decides the number of features of this kernel, which then takes none."""
    parameter = inspect.signature(find_feature_map(name)).parameters.get("num_features")
    return parameter is None or parameter.default is None
