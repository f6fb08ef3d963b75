"""What a sequence costs in slices: ``torchrun --nproc-per-node 2 scripts/split_time.py [LENGTH]``.

Each process has one thread. The first also computes the whole sequence alone, while the others wait.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import kernelformer as kf
from kernelformer.feature_maps import Hedgehog

HEADS, WIDTH, FEATURES, ROUNDS = 8, 64, 128, 7


def main() -> None:
    """Print a line for every form: whole, in slices, their ratio, and the bytes a process receives."""
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 32_768
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    whole = torch.randn(3, 1, HEADS, length, WIDTH, generator=torch.Generator().manual_seed(0))
    mine = whole.chunk(world, dim=3)[rank].contiguous()
    state_bytes = 4 * HEADS * (FEATURES * WIDTH + FEATURES + 4)
    for causal in (False, True):
        for trains in (False, True):
            attention = kf.KernelAttention(Hedgehog(WIDTH, HEADS, FEATURES), causal, below_crossover="ignore")
            alone = _time(attention, whole, trains) if rank == 0 else 0.0
            dist.barrier()
            attention.split_over(dist.group.WORLD)
            split = _time(attention, mine, trains)
            if rank == 0:
                form = ("causal" if causal else "bidirectional") + (", training" if trains else "")
                received = f"{(world - 1) * state_bytes / 2**20:.2f} MiB received forward"
                print(f"{form:<24} {1e3 * alone:8.0f} ms whole {1e3 * split:8.0f} ms in {world}: "
                      f"{alone / split:.2f} × as fast, {received}")  # fmt: skip
    dist.destroy_process_group()


def _time(attention: kf.KernelAttention, inputs: torch.Tensor, trains: bool) -> float:
    inputs = inputs.clone().requires_grad_(trains)

    def forward() -> None:
        with torch.set_grad_enabled(trains):
            out = attention(*inputs)
        if trains:
            out.sum().backward()

    forward()
    return statistics.median(_once(forward) for _ in range(ROUNDS))


def _once(call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
