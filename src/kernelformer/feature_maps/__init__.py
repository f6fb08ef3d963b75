"""A file a map; ``FEATURE_MAPS`` gives each class its name."""

from kernelformer.feature_maps.darkformer import Darkformer
from kernelformer.feature_maps.elu import Elu
from kernelformer.feature_maps.favor import Favor
from kernelformer.feature_maps.flexformer_n import FlexformerN
from kernelformer.feature_maps.flexformer_s import FlexformerS
from kernelformer.feature_maps.hedgehog import Hedgehog
from kernelformer.feature_maps.registry import find_in
from kernelformer.features import FeatureMap

__all__ = ["FEATURE_MAPS", "Darkformer", "Elu", "Favor", "FlexformerN", "FlexformerS", "Hedgehog", "find_feature_map"]

FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    "darkformer": Darkformer,
    "elu": Elu,
    "favor": Favor,
    "flexformer_n": FlexformerN,
    "flexformer_s": FlexformerS,
    "hedgehog": Hedgehog,
}


def find_feature_map(name: str) -> type[FeatureMap]:
    """The class of a kernel: a name of ``FEATURE_MAPS``, or "module:Class" for a user's own.

    Raises:
        KernelformerError: no such name (the near ones are given), or no such class.
    """
    return find_in(FEATURE_MAPS, name)
