"""Time and peak memory of a training step at the length of document retrieval, all kernels and softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from kernelformer.bench.clock import median_seconds
from kernelformer.bench.environment import environment
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.memory import step_memory
from kernelformer.bench.rows import Rows
from kernelformer.bench.training_step import SOFTMAX, TrainingStep
from kernelformer.feature_maps import FEATURE_MAPS

__all__ = ["LENGTH", "METHODS", "efficiency_markdown", "measure_efficiency"]

LENGTH: Final = 4000
_EAGER, _SDPA = SOFTMAX
_FIRST: Final = (_EAGER, "flexformer_n", "hedgehog")
METHODS: Final = (
    *_FIRST,
    *sorted(name for name, kind in FEATURE_MAPS.items() if not kind.is_gated and name not in _FIRST),
)
"""All but SDPA, the yardstick. Gated maps are causal alone."""

_TOGETHER: Final = 3
"""Methods whose steps take turns with the yardstick's."""


def measure_efficiency(
    repeats: int,
    rows: Rows,
    *,
    length: int = LENGTH,
    methods: tuple[str, ...] = METHODS,
    step: TrainingStep | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Median seconds of a step, in turns with SDPA's, and peak MiB above what lay in memory before it.

    Args:
        repeats: steps of each method, after one that is not counted.
        rows: finished parts.
        step: its sizes; None is ``TrainingStep``'s own.

    Returns:
        {"length", "step", "rows": [{"method", "seconds", "sdpa_seconds", "mib" (None where unknown)}], "versions",
        "machine"}; SDPA comes first.
    """
    step = TrainingStep(_SDPA) if step is None else step
    sizes = {name: value for name, value in asdict(step).items() if name != "method"}
    steps = {name: TrainingStep(name, **sizes) for name in (_SDPA, *methods)}
    seconds: dict[str, tuple[float, float]] = {}
    for first in range(0, len(methods), _TOGETHER):
        group = methods[first : first + _TOGETHER]
        say(f"time of {', '.join(group)}")
        chosen = {name: steps[name] for name in (_SDPA, *group)}
        found = rows.get(f"time: {', '.join(group)}", partial(_times, chosen, length, repeats))
        seconds |= {name: (found[name], found[_SDPA]) for name in found if name != _SDPA or not seconds}
    measured = []
    for name, one in steps.items():
        say(f"memory of {name}")
        memory = rows.get(f"memory: {name}", partial(step_memory, one, length))
        mib = None if memory["mib"] is None else memory["mib"][0]
        measured.append({"method": name, "seconds": seconds[name][0], "sdpa_seconds": seconds[name][1], "mib": mib})
    return {"length": length, "step": sizes, "rows": measured, **environment()}


def efficiency_markdown(study: dict[str, Any]) -> str:
    """A row a method: speed and memory against both forms of softmax, ordered by speed."""
    rows = {row["method"]: row for row in study["rows"]}
    slower = rows[_EAGER]["seconds"] / rows[_EAGER]["sdpa_seconds"]
    eager, sdpa = rows[_EAGER]["mib"], rows[_SDPA]["mib"]
    header = ["attention", "seconds", "speed, of eager", "speed, of SDPA", "MiB", "memory, of eager", "memory, of SDPA"]
    lines = []
    for row in sorted(rows.values(), key=lambda row: row["seconds"] / row["sdpa_seconds"]):
        faster = row["sdpa_seconds"] / row["seconds"]
        lines.append(
            [
                row["method"],
                *(f"{value:.2f}" for value in (row["seconds"], faster * slower, faster)),
                "" if row["mib"] is None else f"{row['mib']:,.0f}",
                *(_share(row["mib"], whole) for whole in (eager, sdpa)),
            ]
        )
    return markdown_table(header, lines)


def _share(part: float | None, whole: float | None) -> str:
    return "" if part is None or whole is None else f"{part / whole:.0%}"


def _times(steps: dict[str, TrainingStep], length: int, repeats: int) -> dict[str, float]:
    return median_seconds({name: step.prepare(length) for name, step in steps.items()}, 0.0, least=repeats)
