"""What can only be known on a CUDA device: that every backend is right there, and how fast.

python scripts/gpu_check.py            on a machine with torch and triton, and flash-linear-attention if there is
python scripts/gpu_check.py --dry-run  the same steps at small sizes on the CPU, to know that this script runs

No step starts after 6 minutes; what was left out is named. Writes gpu.json and gpu.md into benchmarks/. Exit code 0
if all is right, 1 if something is wrong, 2 without a device.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
if importlib.util.find_spec("kernelformer") is None:
    sys.path.insert(0, str(ROOT / "src"))

import kernelformer as kf  # noqa: E402
from kernelformer.bench.engine import Setting, measure  # noqa: E402
from kernelformer.bench.engine_table import markdown, reasons, tables  # noqa: E402
from kernelformer.bench.floors import FORMS, Rates, floor_seconds  # noqa: E402
from kernelformer.bench.markdown import markdown_table  # noqa: E402
from kernelformer.engine import attend_reference  # noqa: E402
from kernelformer.engine.choose import BACKENDS  # noqa: E402
from kernelformer.features import FeatureMap  # noqa: E402

MAPS: dict[str, Callable[[int, int], FeatureMap]] = {
    "elu": lambda dim, heads: kf.feature_maps.Elu(dim, heads),
    "hedgehog": lambda dim, heads: kf.feature_maps.Hedgehog(dim, heads, 2 * dim),
    "favor": lambda dim, heads: kf.feature_maps.Favor(dim, heads, 2 * dim),
    "lfk": lambda dim, heads: kf.feature_maps.Lfk(dim, heads, 2 * dim),
    "darkformer": lambda dim, heads: kf.feature_maps.Darkformer(dim, heads, 2 * dim),
    "flexformer_n": lambda dim, heads: kf.feature_maps.FlexformerN(dim, heads, 2 * dim),
}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


class Plan(NamedTuple):
    """Sizes and lengths of one run."""

    device: str
    dim: int
    heads: int
    length: int
    lengths: tuple[int, ...]
    training: tuple[int, ...]
    seconds: float
    limit: float = 360.0


FULL = Plan("cuda", 64, 16, 1000, tuple(1024 * 2**i for i in range(8)), (1024, 4096, 16384), 0.5)
DRY = Plan("cpu", 8, 2, 50, (16, 32), (16,), 0.0)


def correctness(plan: Plan, stop: float) -> Iterator[dict[str, Any]]:
    """Each backend, map, form and dtype against the reference: the largest error over the largest value."""
    for dtype, name, causal, backend in itertools.product(TOLERANCE, MAPS, (False, True), BACKENDS[1:]):
        if time.perf_counter() < stop:
            found = error(MAPS[name](plan.dim, plan.heads).to(plan.device), causal, dtype, backend, plan)
        else:
            found = {"refused": "out of time", "right": None}
        yield {"map": name, "causal": causal, "dtype": str(dtype)[6:], "backend": backend, **found}


def error(feature_map: FeatureMap, causal: bool, dtype: torch.dtype, backend: str, plan: Plan) -> dict[str, Any]:
    """Of outputs and of the gradient for q, with twice as many query heads as key heads and a padded tail."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 2 * plan.heads, plan.length, plan.dim)
    q, k, v, weights = (torch.randn(shape, generator=generator).to(plan.device, dtype) for _ in range(4))
    k, v = k[:, : plan.heads], v[:, : plan.heads]
    mask = torch.ones(2, plan.length, dtype=torch.bool, device=plan.device)
    mask[0, -7:] = False
    attention = kf.KernelAttention(feature_map, causal, below_crossover="ignore", backend=backend)
    q.requires_grad_()
    try:
        out = attention(q, k, v, mask)
    except kf.KernelformerError as refusal:
        return {"refused": str(refusal), "right": None}
    (gradient,) = torch.autograd.grad((out * weights).sum(), q)
    exact_q = q.detach().double().requires_grad_()
    feature_map = feature_map.double()
    features = feature_map.map_q(exact_q), feature_map.map_k(k.double(), None, mask)
    exact = attend_reference(*features, v.double(), causal=causal, floor=feature_map.floor).out
    (exact_gradient,) = torch.autograd.grad((exact * weights.double()).sum(), exact_q)
    off = relative(out.detach(), exact.detach(), mask)
    gradient_off = relative(gradient, exact_gradient, mask)
    right = off < TOLERANCE[dtype] and gradient_off < 5 * TOLERANCE[dtype]
    return {"error": off, "gradient_error": gradient_off, "right": right}


def conversion() -> dict[str, Any]:
    """A small encoder converted and trained, where the Trainer finds a device: do errors fall, or what stopped it?"""
    try:
        import transformers

        from kernelformer.learn import Schedule, distill, finetune, layer_errors, start_from_data
    except ImportError as error:
        return {"refused": str(error), "right": None}
    torch.manual_seed(0)
    sizes = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        initializer_range=0.3,
    )  # fmt: skip
    teacher = transformers.BertModel(sizes).eval()
    student = kf.convert(copy.deepcopy(teacher), "hedgehog", 16)
    batches = [{"input_ids": torch.randint(50, (4, 12)), "attention_mask": torch.ones(4, 12).long()} for _ in range(4)]
    try:
        start_from_data(student, batches)
        before = sum(layer_errors(student, batches))
        distill(student, batches, Schedule(steps=20, kernel_learning_rate=0.05))
        after = sum(layer_errors(student, batches))
        finetune(student, teacher, batches, Schedule(steps=4))
    except RuntimeError as error:
        return {"refused": str(error), "right": False}
    return {"before": before, "after": after, "right": after < before}


def relative(found: Tensor, exact: Tensor, mask: Tensor) -> float:
    """The largest error on rows that are no padding, over the largest value."""
    off = (found.double() - exact) * mask[:, None, :, None]
    return float(off.abs().max() / exact.abs().max())


def timings(plan: Plan, form: str, lengths: tuple[int, ...]) -> dict[str, Any]:
    """The bench in bfloat16, each row with its share of the copy floor: what reading and writing alone would take."""
    setting = Setting(
        forms=(form,), lengths=lengths, kernels=("elu", "hedgehog", "favor"), rivals=("sdpa", "flash-linear-attention"),
        dtype="bfloat16", num_heads=plan.heads, head_dim=plan.dim, num_features=2 * plan.dim, seconds=plan.seconds,
        memory=plan.device == "cuda", device=plan.device,
    )  # fmt: skip
    result = measure(setting, lambda what: print(f"  {what}", file=sys.stderr))
    copies = Rates(float("inf"), result["rates"]["copies"])
    for row in result["rows"]:
        feature_map = setting.case(row["form"], row["kernel"]).feature_map()
        least = floor_seconds(row["form"], feature_map, row["length"], plan.dim, copies, itemsize=2)
        row["copy_share"] = least / row["seconds"]
    return result


def report(result: dict[str, Any]) -> str:
    """The run in Markdown."""
    wrong = [row for row in result["correctness"] if row["right"] is False]
    right = [row for row in result["correctness"] if row["right"]]
    refused = sorted({row["refused"] for row in result["correctness"] if row["right"] is None})
    text = [f"# GPU check\n\n{result['device']}, torch {torch.__version__}, {result['seconds']:.0f} s.\n"]
    text += [f"{len(right)} combinations are right, {len(wrong)} wrong.\n", *(f"- wrong: {row}" for row in wrong)]
    text += [f"- not run: {reason}" for reason in refused]
    text.append(f"- a small encoder, converted and trained: {result['conversion']}")
    text += [f"- not timed, out of time: {form}" for form in result["not_timed"]]
    for timed in result["timings"]:
        text += [f"\n## {shown.title}\n\n{markdown(shown)}" for shown in tables(timed)]
        text += [f"- {reason}" for reason in reasons(timed)]
        shares = [
            [row["form"], row["kernel"], f"{row['length']:,}", f"{row['copy_share']:.0%}"] for row in timed["rows"]
        ]
        table = markdown_table(["form", "kernel", "N", "share"], shares, left=(0, 1))
        text.append(f"\n## Share of the copy floor\n\n{table}")
    return "\n".join(text) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, time, write."""
    parser = argparse.ArgumentParser(description="Correctness and speed on a CUDA device.")
    parser.add_argument("--dry-run", action="store_true", help="small sizes on the CPU")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks")
    given = parser.parse_args(arguments)
    plan = DRY if given.dry_run else FULL
    if plan.device == "cuda" and not torch.cuda.is_available():
        print("gpu-check: there is no CUDA device that torch can use; --dry-run goes through the steps on the CPU")
        return 2
    start = time.perf_counter()
    # Half for correctness, which compiles each kernel anew for each kind of map.
    found = list(correctness(plan, start + plan.limit / 2))
    converted = conversion()
    timed = []
    for form, lengths in (("bidirectional", plan.lengths), ("causal", plan.lengths), ("training", plan.training)):
        if time.perf_counter() < start + plan.limit:
            timed.append(timings(plan, form, lengths))
    result = {
        "device": torch.cuda.get_device_name() if plan.device == "cuda" else "CPU, dry run: no figure of a device",
        "seconds": time.perf_counter() - start,
        "correctness": found,
        "conversion": converted,
        "timings": timed,
        "not_timed": [
            form for form in FORMS[:-1] if form not in {form for t in timed for form in t["setting"]["forms"]}
        ],
    }
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "gpu.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (given.output / "gpu.md").write_text(report(result), encoding="utf-8")
    print(report(result))
    return 1 if any(row["right"] is False for row in [*found, converted]) else 0


if __name__ == "__main__":
    sys.exit(main())
