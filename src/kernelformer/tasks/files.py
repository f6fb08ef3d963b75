"""Files that are whole or absent, and JSON."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["plain", "why_not_written", "write_json", "write_text"]

_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=2))


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    # Beside the target, because a rename is atomic within one file system only.
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def why_not_written(error: BaseException) -> str | None:
    """What kept a file from being written, in words; None where ``error`` says nothing of the kind.

    safetensors and PyTorch tell the system's error in words of their own.
    """
    told = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in _NOT_WRITTEN:
        return f"{error.filename} cannot be written: {error.strerror}" if error.filename else str(error.strerror)
    for number in _NOT_WRITTEN:
        if os.strerror(number) in told or f"code: {number}," in told:
            return f"a file cannot be written: {os.strerror(number)}"
    if "PytorchStreamWriter failed" in told or "iostream error" in told:
        return "a file cannot be written: the disk is full or the file too large"
    cause = error.__cause__ or error.__context__
    return None if cause is None else why_not_written(cause)


def plain(value: Any) -> Any:
    """What JSON knows: lists, dictionaries with names, and None for numbers that are not finite.

    Example:
        >>> plain({1: (0.5, float("nan"))})
        {'1': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
