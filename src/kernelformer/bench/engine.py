"""Time and memory of attention beside their floors and their rivals: ``kernelformer bench``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import torch

from kernelformer.bench.case import DTYPES, Case
from kernelformer.bench.clock import Call, check_device, median_seconds
from kernelformer.bench.crossover import measured_crossover
from kernelformer.bench.environment import processor
from kernelformer.bench.floors import FORMS, Rates, floor_mib, floor_seconds, measure_rates
from kernelformer.bench.memory import Memory, case_memory
from kernelformer.bench.rivals import RIVALS
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import find_feature_map

__all__ = ["Row", "Setting", "measure"]

Say = Callable[[str], object]
Peaks = Callable[[Case, tuple[int, ...]], Memory]


@dataclass(frozen=True)
class Setting:
    """What to measure. Every combination of form, length and kernel is a row.

    Attributes:
        forms: of ``FORMS``; kernels: names of ``FEATURE_MAPS`` or "module:Class"; rivals: of ``RIVALS``.
        dtype: float32, bfloat16 or float16, of q, k and v.
        seconds: roughly what the times of one row may take; a rival that takes four times as long is called once.
        memory: measure peak memory, too, each method in a process of its own.
        device: "cpu" or a CUDA device.
    """

    forms: tuple[str, ...] = ("bidirectional", "causal", "training", "step")
    lengths: tuple[int, ...] = (512, 1024, 4096, 16384)
    kernels: tuple[str, ...] = ("hedgehog", "favor", "flexformer_n")
    rivals: tuple[str, ...] = tuple(RIVALS)
    dtype: str = "float32"
    num_heads: int = 8
    head_dim: int = 64
    num_features: int = 128
    seconds: float = 3.0
    memory: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, given, known in (
            ("forms", self.forms, FORMS),
            ("rivals", self.rivals, RIVALS),
            ("dtype", [self.dtype], DTYPES),
        ):
            unknown = [value for value in given if value not in known]
            if unknown:
                raise KernelformerError(f"{name}: expected some of {', '.join(known)}, got {', '.join(unknown)}")
        for kernel in self.kernels:
            find_feature_map(kernel)
        if not self.lengths or min(self.lengths) < 1:
            raise KernelformerError(f"lengths must be positive, got {self.lengths}")
        if not self.forms or not self.kernels:
            raise KernelformerError("forms and kernels must each name one at least")
        check_device(self.device)

    def case(self, form: str, kernel: str) -> Case:
        """The kernel in this form."""
        return Case(
            form,
            kernel,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            num_features=self.num_features,
            dtype=self.dtype,
            device=self.device,
        )


class Row(TypedDict):
    """Median seconds and peak MiB; ``rivals`` have a reason in place of a figure where there is none.

    The MiB of a step are those kept from step to step. Without ``Setting.memory`` there are none.
    """

    form: str
    kernel: str
    length: int
    seconds: float
    floor: float
    rivals: dict[str, float | str]
    mib: float | str | None
    floor_mib: float
    rivals_mib: dict[str, float | str]


def measure(setting: Setting, say: Say | None = None) -> dict[str, Any]:
    """All rows, the rates behind the floors, and where kernels begin to win; plain data for JSON.

    Args:
        say: is told what is being measured.
    """
    said: Say = say or (lambda _: None)
    said("rates of this machine")
    rates = measure_rates(DTYPES[setting.dtype], device=setting.device)
    # Once for every rival, not once for every kernel that it is compared with.
    peaks = functools.cache(_peaks)
    rows: list[Row] = []
    for form in setting.forms:
        for kernel in setting.kernels:
            case = setting.case(form, kernel)
            own = [_row(setting, case, length, rates, said) for length in setting.lengths]
            if setting.memory:
                said(f"memory, {form}, {kernel}")
                own = _with_memory(setting, case, own, peaks)
            rows += own
    return {
        "setting": asdict(setting),
        "machine": processor(setting.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rates": rates._asdict(),
        "rows": rows,
        "crossovers": _crossovers(setting, rows),
    }


def _row(setting: Setting, case: Case, length: int, rates: Rates, say: Say) -> Row:
    say(f"{case.form}, {case.method}, N = {length:,}")
    feature_map = case.feature_map()
    own = case.prepare(length)
    assert not isinstance(own, str)
    calls: dict[str, Call] = {"": own}
    rivals: dict[str, float | str] = {}
    for name in setting.rivals:
        rival = case.rival(name, feature_map.num_features).prepare(length)
        first = rival if isinstance(rival, str) else _first_time(name, rival, setting.device)
        if isinstance(rival, str) or isinstance(first, str) or first > 4 * setting.seconds > 0:
            rivals[name] = first
        else:
            calls[name] = rival
    seconds = median_seconds(calls, setting.seconds, setting.device)
    value_dim, itemsize = setting.head_dim, DTYPES[setting.dtype].itemsize
    return {
        "form": case.form,
        "kernel": case.method,
        "length": length,
        "seconds": seconds.pop(""),
        "floor": floor_seconds(case.form, feature_map, length, value_dim, rates, itemsize=itemsize),
        "rivals": {**rivals, **seconds},
        "mib": None,
        "floor_mib": floor_mib(case.form, feature_map, length, value_dim, itemsize=itemsize),
        "rivals_mib": {},
    }


def _first_time(name: str, call: Call, device: str) -> float | str:
    """Seconds of the first call, or why it can't be made: other people's code may not take this dtype or device."""
    try:
        return median_seconds({name: call}, 0.0, device, least=1, warm_up=False)[name]
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        return f"{name} failed: {' '.join(str(error).split())[:120]}"


def _with_memory(setting: Setting, case: Case, rows: list[Row], peaks: Peaks) -> list[Row]:
    feature_map = case.feature_map()
    own = peaks(case, setting.lengths)
    theirs = {
        name: peaks(case.rival(name, feature_map.num_features), setting.lengths)
        for name in setting.rivals
        if not isinstance(rows[0]["rivals"][name], str)
    }
    filled = []
    for index, row in enumerate(rows):
        rivals: dict[str, float | str] = {name: _at(memory, index) for name, memory in theirs.items()}
        filled.append(Row(**{**row, "mib": _at(own, index), "rivals_mib": rivals}))
    return filled


def _peaks(case: Case, lengths: tuple[int, ...]) -> Memory:
    if case.form == "step":
        return {"mib": [case.kept_mib(length) for length in lengths], "reason": None}
    return case_memory(case, lengths)


def _at(memory: Memory, index: int) -> float | str:
    return memory["reason"] or "unknown" if memory["mib"] is None else memory["mib"][index]


def _crossovers(setting: Setting, rows: list[Row]) -> list[dict[str, Any]]:
    """From which length on each kernel is faster than each rival; None if it is not at the longest."""
    found = []
    for form in setting.forms:
        for kernel in setting.kernels:
            own = [row for row in rows if (row["form"], row["kernel"]) == (form, kernel)]
            for rival in setting.rivals:
                points = [(row["length"], row["rivals"][rival], row["seconds"]) for row in own]
                known = [(n, theirs, ours) for n, theirs, ours in points if not isinstance(theirs, str)]
                if known:
                    found.append({"form": form, "kernel": kernel, "rival": rival, "length": measured_crossover(known)})
    return found
