"""Peak memory of attention and of models by sequence length, each measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import torch

from kernelformer.bench.case import Case
from kernelformer.bench.spec import AttentionSpec

if TYPE_CHECKING:
    # It loads transformers, which attention alone does without.
    from kernelformer.bench.training_step import TrainingStep

__all__ = ["Memory", "attention_memory", "case_memory", "model_memory", "step_memory"]

_ENVIRONMENT: Final = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""glibc then gives freed blocks back at once; by default it keeps them, and fragments grow the peak manyfold."""


class Memory(TypedDict):
    """Peak MiB above what was in use before the call, one a length; None and the reason where unknown.

    Inputs and weights do not count, the output does. Resolution is about half a MiB.
    """

    mib: list[float] | None
    reason: str | None


def attention_memory(
    spec: AttentionSpec, lengths: Sequence[int], *, seed: int = 0, timeout: float = 120.0
) -> tuple[Memory, Memory]:
    """Peak memory of (softmax, kernel) attention of this shape, batch 1, without gradients.

    Args:
        timeout: seconds that each of the two processes may take.
    """
    softmax, kernel = (
        _measure(
            {"spec": {**asdict(spec), "options": dict(spec.options)}, "implementation": name}, lengths, seed, timeout
        )
        for name in ("softmax", "kernel")
    )
    return softmax, kernel


def case_memory(case: Case, lengths: Sequence[int], *, timeout: float = 300.0) -> Memory:
    """Peak memory of one call of this case; on a CUDA device that of torch's allocator, and in this process.

    Args:
        timeout: seconds that the process may take.
    """
    if case.device.startswith("cuda"):
        return _cuda_peaks(case, lengths)
    return _measure({"case": asdict(case)}, lengths, case.seed, timeout)


def model_memory(
    folder: str | Path,
    lengths: Sequence[int],
    *,
    own_kernel: str | None = None,
    seed: int = 0,
    timeout: float = 120.0,
) -> Memory:
    """Peak memory of a forward pass of the model in ``folder``, converted or not, on one text.

    Args:
        own_kernel: as for ``kernelformer.load``.
    """
    return _measure({"folder": str(folder), "own_kernel": own_kernel}, lengths, seed, timeout)


def step_memory(step: TrainingStep, length: int, *, seed: int = 0, timeout: float = 300.0) -> Memory:
    """Peak memory of one training step on one text: activations, gradients and the state of the optimiser.

    Args:
        timeout: seconds that the process may take.
    """
    return _measure({"step": asdict(step)}, [length], seed, timeout)


def _measure(request: Mapping[str, Any], lengths: Sequence[int], seed: int, timeout: float) -> Memory:
    if not sys.platform.startswith("linux"):
        return _unknown(f"peak memory is measured on Linux only, this is {sys.platform}")
    full = {**request, "lengths": list(lengths), "seed": seed, "threads": torch.get_num_threads()}
    # The same search path, so that a user's own feature map is found there, too.
    environment = {
        **os.environ,
        **_ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kernelformer.bench.worker"],
            input=json.dumps(full),
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _unknown(f"the measurement took longer than {timeout:.0f} s")
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return _unknown(f"the measuring process ended with code {done.returncode}: {last[0]}")
    answer = json.loads(done.stdout)
    return {"mib": answer["mib"], "reason": answer["reason"]}


def _cuda_peaks(case: Case, lengths: Sequence[int]) -> Memory:
    peaks = []
    for length in lengths:
        call = case.prepare(length)
        if isinstance(call, str):
            return _unknown(call)
        call()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        peaks.append((torch.cuda.max_memory_allocated() - before) / 2**20)
    return {"mib": peaks, "reason": None}


def _unknown(reason: str) -> Memory:
    return {"mib": None, "reason": reason}
