"""Files that are whole or absent, and JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["plain", "write_json", "write_text"]


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
