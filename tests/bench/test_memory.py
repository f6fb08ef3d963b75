"""The peak is that of the call: what it must allocate, and not what came before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kernelformer.bench import memory, worker
from kernelformer.bench.memory import attention_memory, step_memory
from kernelformer.bench.spec import AttentionSpec
from kernelformer.bench.training_step import TrainingStep

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
SPEC = AttentionSpec("elu", head_dim=64, num_heads=8)


@LINUX
def test_peak_is_what_the_call_allocates_also_after_a_greater_one() -> None:
    def allocate(mib: int) -> float:
        return worker._peak_mib(lambda: torch.ones(mib * 2**18).sum())

    # Larger than what the allocator of this process may keep.
    allocate(1)
    assert [round(allocate(mib) / mib, 1) for mib in (160, 96, 192)] == [1.0, 1.0, 1.0]


@LINUX
def test_both_sides_are_measured_in_processes_of_their_own() -> None:
    # Lengths not in order: a peak that was not reset would stay.
    softmax, kernel = attention_memory(SPEC, (8192, 4096))
    for side in (softmax, kernel):
        assert side["reason"] is None
        assert side["mib"] is not None
        long, short = side["mib"]
        # The output alone is H N D floats, of which some may lie in pages that the process had.
        assert long >= 0.95 * 16.0
        assert short >= 0.95 * 8.0
        assert long == pytest.approx(2 * short, rel=0.35)
    assert softmax["mib"] is not None
    # The weights, written out, would be H N² floats, 2 GiB.
    assert softmax["mib"][0] < 64


def test_elsewhere_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    softmax, _ = attention_memory(SPEC, (16,))
    assert softmax == {"mib": None, "reason": "peak memory is measured on Linux only, this is darwin"}


@LINUX
def test_a_process_that_fails_is_a_reason_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    softmax, kernel = attention_memory(AttentionSpec("no_such_kernel", head_dim=4, num_heads=1), (16,))
    assert softmax["reason"] is None
    assert kernel["mib"] is None
    assert "no kernel 'no_such_kernel'" in str(kernel["reason"])
    monkeypatch.setattr(memory, "_ENVIRONMENT", {})
    softmax, _ = attention_memory(SPEC, (16,), timeout=0.01)
    assert softmax == {"mib": None, "reason": "the measurement took longer than 0 s"}


def test_a_peak_that_cannot_be_reset_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str, encoding: str) -> int:
        raise PermissionError("denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    request = {
        "spec": {"kernel": "elu", "head_dim": 4, "num_heads": 1},
        "implementation": "kernel",
        "lengths": [16],
        "seed": 0,
        "threads": torch.get_num_threads(),
    }
    answer = worker._answer(request)
    assert answer["mib"] is None
    assert "cannot be reset here (denied)" in answer["reason"]


@LINUX
@pytest.mark.slow
def test_a_training_step_of_eager_softmax_is_quadratic_and_that_of_a_kernel_is_not() -> None:
    sizes = {"num_layers": 1, "num_heads": 2, "head_dim": 8, "feed_forward": 16, "num_features": 16}
    peaks: dict[tuple[str, int], float] = {}
    for method in ("softmax (eager)", "elu"):
        for length in (1500, 3000):
            found = step_memory(TrainingStep(method, **sizes), length)["mib"]
            assert found is not None
            peaks[method, length] = found[0]
    assert peaks["softmax (eager)", 3000] > 3 * peaks["softmax (eager)", 1500]
    assert peaks["elu", 3000] < 3 * peaks["elu", 1500]
    assert peaks["elu", 3000] < 0.3 * peaks["softmax (eager)", 3000]
