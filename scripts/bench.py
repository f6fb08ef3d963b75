"""Time and memory of one attention layer, softmax against kernels, on this machine: `make bench`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import kernelformer as kf
from kernelformer.bench.attention import LENGTHS, crossover, time_attention
from kernelformer.bench.memory import attention_memory
from kernelformer.bench.spec import AttentionSpec


def measure(spec: AttentionSpec, seconds: float, lengths: list[int]) -> dict[str, Any]:
    """Times, peak memory and the length from which the kernel is faster."""
    timings = time_attention(spec, seconds=seconds, lengths=lengths)
    softmax, kernel = attention_memory(spec, lengths)
    return {
        "kernel": spec.kernel,
        "num_features": spec.num_features,
        "head_dim": spec.head_dim,
        "num_heads": spec.num_heads,
        "threads": torch.get_num_threads(),
        "timings": timings,
        "crossover": crossover(timings),
        "softmax_memory": softmax,
        "kernel_memory": kernel,
    }


def show(result: dict[str, Any]) -> None:
    """One table: a row for each length, then where the kernel begins to win."""
    print(f"\n{result['kernel']}: {result['num_heads']} heads of {result['head_dim']}, {result['threads']} threads")
    print(f"{'length':>8} {'softmax ms':>11} {'kernel ms':>10} {'softmax MiB':>12} {'kernel MiB':>11}")
    unknown = [None] * len(result["timings"])
    memories = (result[side]["mib"] or unknown for side in ("softmax_memory", "kernel_memory"))
    for row, *peaks in zip(result["timings"], *memories, strict=True):
        softmax, kernel = ("unknown" if peak is None else f"{peak:.1f}" for peak in peaks)
        print(f"{row['length']:8,} {row['softmax_ms']:11.2f} {row['kernel_ms']:10.2f} {softmax:>12} {kernel:>11}")
    won = result["crossover"]
    print("softmax is faster throughout" if won is None else f"the kernel is faster from a length of {won:,.0f}")


def main() -> None:
    """Measure each kernel asked for; print the tables, keep the figures."""
    parser = argparse.ArgumentParser(description="Time and memory of one attention layer, softmax against kernels.")
    parser.add_argument("kernels", nargs="*", default=["hedgehog"], help="names as in `kernelformer list`")
    parser.add_argument("--num-features", type=int, help="M; the map's own default if left out")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--num-heads", type=int, default=8)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--seconds", type=float, default=30.0, help="for the times of one kernel")
    parser.add_argument("--output", type=Path, default=Path("runs/bench.json"))
    chosen = parser.parse_args()
    results = []
    try:
        for name in chosen.kernels:
            spec = AttentionSpec(name, chosen.head_dim, chosen.num_heads, chosen.num_features)
            results.append(measure(spec, chosen.seconds, chosen.lengths))
            show(results[-1])
    except kf.KernelformerError as error:
        parser.error(str(error))
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten: {chosen.output}")


if __name__ == "__main__":
    main()
