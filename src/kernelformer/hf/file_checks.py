"""What transformers raises about files that are not what they should be, as one error of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PretrainedConfig

from kernelformer.errors import KernelformerError
from kernelformer.hf.record import MOST_LAYERS

__all__ = ["check_finite", "check_size", "told_in_one_line"]

_Model = TypeVar("_Model", bound=nn.Module)
_LONGEST = 300
_SMALL = 1 << 20


@contextmanager
def told_in_one_line(what: str) -> Iterator[None]:
    """Turn whatever is raised about a broken file into a KernelformerError that begins with ``what``."""
    try:
        yield
    except KernelformerError:
        raise
    except Exception as error:
        # transformers checks little before it computes with what it read: any exception may come of a broken file.
        told = " ".join(str(error).split()) or type(error).__name__
        raise KernelformerError(f"{what}: {told[:_LONGEST]}") from error


def check_size(build: Callable[[], nn.Module], config: PretrainedConfig, path: str | Path) -> None:
    """Check that the model which ``build`` makes of ``config`` is no larger than the weights in the folder ``path``.

    It is made without memory for its weights. A hub name has no files here yet.

    Raises:
        KernelformerError: it is, or cannot be made.
    """
    folder = Path(path)
    found = [*folder.glob("*.safetensors"), *folder.glob("*.bin")] if folder.is_dir() else []
    files = [file for file in found if file.is_file()]
    if not files:
        return
    layers = getattr(config, "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > MOST_LAYERS:
        raise KernelformerError(f"{path}: config.json has {layers!r} layers, more than {MOST_LAYERS:,}")
    with told_in_one_line(f"{path}: config.json describes no model"), torch.device("meta"):
        model = build()
    needed = sum(weight.numel() for weight in model.parameters())
    held = sum(file.stat().st_size for file in files)
    # Four bits a number at least, and room for a fresh head.
    if needed > 2 * held + _SMALL:
        raise KernelformerError(
            f"{path}: config.json describes {needed:,} weights, more than its files of {held:,} bytes can hold"
        )
    if getattr(config, "quantization_config", None) is None:
        names = {name.rpartition(".")[2] for name, _ in model.named_parameters()}
        _check_dtypes((file for file in files if file.suffix == ".safetensors"), names)


def _check_dtypes(files: Iterable[Path], names: set[str]) -> None:
    """Whole numbers where weights are ought to be; transformers would make them floating point, and say nothing."""
    for file in files:
        for name, entry in _header(file).items():
            dtype = entry.get("dtype") if isinstance(entry, dict) else None
            if isinstance(dtype, str) and dtype[0] in "IUB" and dtype != "BF16" and name.rpartition(".")[2] in names:
                raise KernelformerError(f"{file}: {name} holds whole numbers ({dtype}), expected floating point")


def _header(file: Path) -> dict[str, Any]:
    """The header of a safetensors file; empty where there is none, which its reader will say."""
    with file.open("rb") as raw:
        size = int.from_bytes(raw.read(8), "little")
        if size > file.stat().st_size:
            return {}
        try:
            found = json.loads(raw.read(size))
        except (ValueError, RecursionError):
            return {}
    return found if isinstance(found, dict) else {}


def check_finite(model: _Model, what: str) -> _Model:
    """The model, if none of its weights is NaN or infinite.

    Raises:
        KernelformerError: one is; the first is named.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Two numbers that NaN and infinity reach, without a copy of the weight.
            if weight.numel() and not bool(torch.stack(torch.aminmax(weight)).isfinite().all()):
                raise KernelformerError(f"{what}: {name} holds NaN or infinity, so the file is broken: fetch it again")
    return model
