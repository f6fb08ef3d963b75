"""The engine computes in the dtype that it chooses, whatever autocast would."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

__all__ = ["no_autocast"]


def no_autocast(device_type: str) -> contextlib.AbstractContextManager[Any]:
    """Entering torch.autocast costs a tenth of a decoding step; it is left out where it would change nothing."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()
