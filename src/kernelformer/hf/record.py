"""Whether ``config.kernelized`` of a folder says what can be, before anything is built from it.

A folder may come from anywhere. What its config promises is checked against types, ranges and the size of the weights
beside it, so that no lie about a shape allocates more than the files hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelformer.errors import KernelformerError

__all__ = ["FORMAT", "MOST_LAYERS", "check_record", "check_seed"]

FORMAT = 2
"""Format number of ``config.kernelized``; a reader refuses a newer one. 2 has window and shared_qk, which 1 lacks."""

MOST_LAYERS = 10_000
_LARGEST_SEED = 2**32 - 1
_LARGEST_SIZE = 1 << 20
_MODULE = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, int) and not isinstance(x, bool) and low <= x <= high


def _is_flag(x: Any) -> bool:
    return isinstance(x, bool)


def _is_options(x: Any) -> bool:
    return isinstance(x, dict) and all(
        isinstance(value, bool | str | float | None) or (isinstance(value, int) and abs(value) <= _LARGEST_SIZE)
        for value in x.values()
    )


_RECORD: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "format": ("a whole number", _whole(0, _LARGEST_SIZE)),
    "kernel": ("a name", lambda x: isinstance(x, str)),
    "num_features": (
        f"a whole number up to {_LARGEST_SIZE}, or null",
        lambda x: x is None or _whole(1, _LARGEST_SIZE)(x),
    ),
    "options": (f"names with numbers up to {_LARGEST_SIZE}, text, true, false or null", _is_options),
    "seed": ("a whole number below 2 ** 32", _whole(0, _LARGEST_SEED)),
    "window": ("a whole number", _whole(0, _LARGEST_SIZE)),
    "shared_qk": ("true or false", _is_flag),
    "layers": (
        f"up to {MOST_LAYERS} layers",
        lambda x: isinstance(x, list) and 0 < len(x) <= MOST_LAYERS and all(isinstance(each, dict) for each in x),
    ),
}
_LAYER: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "module": ("a path of modules", lambda x: isinstance(x, str) and _MODULE.fullmatch(x) is not None),
    "num_kv_heads": (f"from 1 to {_LARGEST_SIZE}", _whole(1, _LARGEST_SIZE)),
    "head_dim": (f"from 1 to {_LARGEST_SIZE}", _whole(1, _LARGEST_SIZE)),
    "causal": ("true or false", _is_flag),
    "converted": ("true or false", _is_flag),
}
# What earlier formats lack.
_OPTIONAL = ("format", "window", "shared_qk")


def check_seed(seed: int) -> None:
    """Check a seed, which NumPy takes below 2³².

    Raises:
        KernelformerError: it is out of that range.
    """
    if not 0 <= seed <= _LARGEST_SEED:
        raise KernelformerError(f"seed must be from 0 to {_LARGEST_SEED}, got {seed}")


def check_record(record: Any, path: str | Path) -> None:
    """Check ``config.kernelized`` of what is at ``path``, a folder or a hub name.

    Raises:
        KernelformerError: it is of a newer format, or promises what cannot be.
    """
    if not isinstance(record, dict):
        raise KernelformerError(f"{path}: kernelized in config.json must be an object, got {type(record).__name__}")
    newer = record.get("format")
    if isinstance(newer, int) and newer > FORMAT:
        raise KernelformerError(
            f"{path} was written in format {newer}, this version reads up to {FORMAT}: upgrade kernelformer"
        )
    _check(record, _RECORD, f"{path}: kernelized in config.json")
    for number, layer in enumerate(record["layers"]):
        _check(layer, _LAYER, f"{path}: layer {number} of kernelized in config.json")
    _check_sizes(record, path)


def _check(given: Mapping[str, Any], table: Mapping[str, tuple[str, Callable[[Any], bool]]], where: str) -> None:
    for name, (wanted, fits) in table.items():
        if name not in given and name in _OPTIONAL:
            continue
        if name not in given:
            raise KernelformerError(f"{where} lacks {name}: save the model again with save_pretrained")
        if not fits(given[name]):
            shown = repr(given[name])
            shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
            raise KernelformerError(f"{where}: {name} must be {wanted}, got {shown}")


def _check_sizes(record: Mapping[str, Any], path: str | Path) -> None:
    """Kernels may be no larger than the weights they are said to be in; a hub name has no files here yet."""
    folder = Path(path)
    if not folder.is_dir():
        return
    held = sum(file.stat().st_size for file in folder.glob("*.safetensors") if file.is_file())
    for number, layer in enumerate(record["layers"]):
        # A draw of this size is what a kernel of num_features keeps, one byte at least for a number.
        width = max(record["num_features"] or 1, layer["head_dim"])
        if layer["converted"] and layer["num_kv_heads"] * layer["head_dim"] * width > max(held, 1 << 20):
            raise KernelformerError(
                f"{path}: layer {number} of kernelized in config.json promises {layer['num_kv_heads']} heads of width "
                f"{layer['head_dim']} with {record['num_features']} features, more than its weights of {held:,} bytes "
                "can hold"
            )
