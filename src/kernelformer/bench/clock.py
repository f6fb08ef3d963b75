"""Medians of calls that take turns, on a CPU or a CUDA device; how long a row of tasks will take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from kernelformer.errors import KernelformerError

__all__ = ["Call", "TimeLeft", "check_device", "median_seconds"]

Call = Callable[[], object]


def median_seconds(
    calls: Mapping[str, Call], seconds: float, device: str = "cpu", *, least: int = 3, warm_up: bool = True
) -> dict[str, float]:
    """The median time of each call, at least ``least`` of each, and one before that warms up.

    They take turns, so that whatever else the machine does meets all alike.

    Args:
        seconds: what all calls together may take, roughly.
        device: the one they run on; a CUDA device is timed by its own events.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values() if warm_up else ():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < least:
        for name, call in calls.items():
            times[name].append(_on_cuda(call) if device.startswith("cuda") else _on_cpu(call))
    return {name: statistics.median(found) for name, found in times.items()}


def check_device(device: str) -> None:
    """Check that it is "cpu", or "cuda" on a machine that has such a device.

    Raises:
        KernelformerError: it is neither.
    """
    if device not in ("cpu", "cuda"):
        raise KernelformerError(f"device is cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise KernelformerError("there is no CUDA device here: leave --device out")


class TimeLeft:
    """Of ``total`` tasks of one kind, counted as they are done; as text ", about 12 min left", or "" when unknown."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._start = total, 0, time.perf_counter()

    def done(self) -> None:
        """One more is done."""
        self._done += 1

    def __str__(self) -> str:
        if not self._done or self._done >= self._total:
            return ""
        seconds = (time.perf_counter() - self._start) / self._done * (self._total - self._done)
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


def _on_cpu(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _on_cuda(call: Call) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1000
