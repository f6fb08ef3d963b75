"""From a name, or "module:Class", to a feature map class. The edge where strings become objects."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping

from kernelformer.errors import KernelformerError
from kernelformer.features import FeatureMap

__all__ = ["find_in"]


def find_in(known: Mapping[str, type[FeatureMap]], name: str) -> type[FeatureMap]:
    """The class of ``name``: a key of ``known``, or "module:Class" for a user's own.

    Raises:
        KernelformerError: no such name (the near ones are given), or no such class.
    """
    if name in known:
        return known[name]
    if ":" not in name:
        near = difflib.get_close_matches(name, known, n=3) or sorted(known)
        raise KernelformerError(f"no kernel {name!r}; near: {', '.join(near)}; your own is given as module:Class")
    module_name, class_name = name.split(":", 1)
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise KernelformerError(f"a kernel of your own is module:Class, as mine.kernels:Mine, got {name!r}")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise KernelformerError(f"kernel {name!r} could not be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, FeatureMap)):
        raise KernelformerError(f"kernel {name!r} is no subclass of kernelformer.FeatureMap")
    return found
