"""Time of attention beside its floor and its rivals, on this machine: ``python -m kernelformer.bench.engine``."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelformer.attention import KernelAttention
from kernelformer.bench.floors import FORMS, Rates, floor_seconds, measure_rates
from kernelformer.bench.rivals import RIVALS, Attend, find_rival
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import find_feature_map

__all__ = ["Row", "Setting", "main", "measure", "table"]

Call = Callable[[], object]
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Setting:
    """What to measure. Every combination of form, length and kernel is a row.

    Attributes:
        forms: of ``FORMS``; kernels: names of ``FEATURE_MAPS`` or "module:Class"; rivals: of ``RIVALS``.
        seconds: roughly what one row may take.
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

    def __post_init__(self) -> None:
        for name, given, known in (
            ("forms", self.forms, FORMS),
            ("rivals", self.rivals, RIVALS),
            ("dtype", [self.dtype], _DTYPES),
        ):
            unknown = [value for value in given if value not in known]
            if unknown:
                raise KernelformerError(f"{name}: expected some of {', '.join(known)}, got {', '.join(unknown)}")
        if not self.lengths or min(self.lengths) < 1:
            raise KernelformerError(f"lengths must be positive, got {self.lengths}")


class Row(TypedDict):
    """Medians in seconds; ``rivals`` has a reason in place of a time where there is none."""

    form: str
    kernel: str
    length: int
    seconds: float
    floor: float
    rivals: dict[str, float | str]


def measure(setting: Setting) -> dict[str, Any]:
    """All rows, with the rates behind the floors; plain data for JSON."""
    rates = measure_rates(_DTYPES[setting.dtype])
    rows = [
        _row(setting, form, kernel, length, rates)
        for form in setting.forms
        for length in setting.lengths
        for kernel in setting.kernels
    ]
    return {
        "setting": asdict(setting),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rates": rates._asdict(),
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    """The rows as text: time, time / floor, and how many times faster than each rival."""
    names = result["setting"]["rivals"]
    heads = ["form", "N", "kernel", "ms", "/ floor", *(f"× {name}" for name in names)]
    lines = [heads]
    for row in result["rows"]:
        rivals = [row["rivals"][name] for name in names]
        lines.append(
            [
                row["form"],
                f"{row['length']:,}",
                row["kernel"],
                f"{1000 * row['seconds']:.3g}",
                f"{row['seconds'] / row['floor']:.2f}",
                *("–" if isinstance(rival, str) else f"{rival / row['seconds']:.2f}" for rival in rivals),
            ]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    reasons = {rival for row in result["rows"] for rival in row["rivals"].values() if isinstance(rival, str)}
    return "\n".join([*text, *(f"– {reason}" for reason in sorted(reasons))])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write JSON and the plot."""
    default = Setting()
    parser = argparse.ArgumentParser(prog="python -m kernelformer.bench.engine", description=__doc__)
    for name in ("forms", "kernels", "rivals"):
        parser.add_argument(f"--{name}", nargs="*", default=getattr(default, name))
    parser.add_argument("--lengths", nargs="+", type=int, default=default.lengths)
    parser.add_argument("--dtype", default=default.dtype)
    parser.add_argument("--num-features", type=int, default=default.num_features)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="roughly, for a row")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("-o", "--out", type=Path, help="folder for engine.json and engine.svg")
    given = vars(parser.parse_args(arguments))
    folder = given.pop("out")
    torch.set_num_threads(given.pop("threads"))
    options: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in given.items()}
    result = measure(Setting(**options))
    print(table(result))
    if folder is not None:
        # matplotlib is not needed for the table.
        from kernelformer.bench.engine_plot import plot_engine

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "engine.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        plot_engine(result, folder / "engine.svg")


def _row(setting: Setting, form: str, kernel: str, length: int, rates: Rates) -> Row:
    causal = form != "bidirectional"
    generator = torch.Generator(device="cpu").manual_seed(0)
    kind: Callable[..., Any] = find_feature_map(kernel)
    # A map whose width is given by its input takes no number of features.
    width = {} if kernel == "elu" else {"num_features": setting.num_features}
    feature_map = kind(setting.head_dim, setting.num_heads, generator=generator, **width)
    attention = KernelAttention(feature_map, causal, below_crossover="exact-kernel")
    dtype = _DTYPES[setting.dtype]
    shape = (1, setting.num_heads, length, setting.head_dim)
    q, k, v = (torch.randn(shape, generator=generator, device="cpu").to(dtype) for _ in range(3))
    calls: dict[str, Call] = {"": _call(form, attention, q, k, v)}
    rivals: dict[str, float | str] = {}
    for name in setting.rivals:
        rival = find_rival(name, setting.head_dim, feature_map.num_features, causal=causal)
        if form == "step" and name != "sdpa":
            rival = f"{name} has no step to measure"
        if isinstance(rival, str):
            rivals[name] = rival
        else:
            calls[name] = _cached_step(q, k, v) if form == "step" else _call(form, rival, q, k, v)
    seconds = _in_turns(calls, setting.seconds)
    floor = floor_seconds(form, feature_map, length, setting.head_dim, rates, itemsize=dtype.itemsize)
    rivals |= {name: time for name, time in seconds.items() if name}
    return {
        "form": form, "kernel": kernel, "length": length, "seconds": seconds[""], "floor": floor, "rivals": rivals
    }  # fmt: skip


def _call(form: str, attend: Attend, q: Tensor, k: Tensor, v: Tensor) -> Call:
    if form == "training":
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        weights = [p for p in attend.parameters() if p.requires_grad] if isinstance(attend, torch.nn.Module) else []
        return lambda: torch.autograd.grad(attend(*leaves).sum(), [*leaves, *weights])
    if form == "step":
        assert isinstance(attend, KernelAttention)
        attention = attend
        with torch.no_grad():
            _, state = attention.stream(q, k, v)
        q, k, v = (x[:, :, -1:] for x in (q, k, v))
        return torch.no_grad()(lambda: attention.stream(q, k, v, state))
    return torch.no_grad()(lambda: attend(q, k, v))


def _cached_step(q: Tensor, k: Tensor, v: Tensor) -> Call:
    """Softmax of one query over a cache of N keys that lie there already: nothing is counted for appending to it."""
    return torch.no_grad()(lambda: F.scaled_dot_product_attention(q[:, :, -1:], k, v))


def _in_turns(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    """Medians of calls that take turns, so that whatever else the machine does meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 3:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


if __name__ == "__main__":
    main()
