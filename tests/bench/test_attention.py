"""Timings have every length and both sides; the crossover is where the curves cross."""

from __future__ import annotations

import time

import pytest
import torch
from transformers import BertConfig, BertModel

from kernelformer.bench import attention
from kernelformer.bench.attention import (
    LENGTHS,
    Timing,
    crossover,
    lengths_up_to,
    time_attention,
    time_models,
)
from kernelformer.bench.spec import AttentionSpec
from kernelformer.errors import KernelformerError

SPEC = AttentionSpec("hedgehog", head_dim=4, num_heads=2, num_features=8)


def timings(softmax: list[float], kernel: list[float]) -> list[Timing]:
    return [
        {
            "length": length,
            "softmax_ms": a,
            "kernel_ms": b,
            "softmax_quartiles": (a, a),
            "kernel_quartiles": (b, b),
            "softmax_repeats": 3,
            "kernel_repeats": 3,
        }
        for length, a, b in zip(LENGTHS, softmax, kernel, strict=False)
    ]


def test_crossover_of_power_laws_is_exact() -> None:
    softmax = [1e-5 * length**2 for length in LENGTHS]
    kernel = [7e-3 * length for length in LENGTHS]
    assert crossover(timings(softmax, kernel)) == pytest.approx(700)
    assert crossover(timings(softmax, kernel)[::-1]) == pytest.approx(700)


def test_crossover_at_the_ends() -> None:
    assert crossover(timings([2, 3, 4], [1, 1, 1])) == 128
    assert crossover(timings([1, 1, 1], [2, 2, 2])) is None
    assert crossover(timings([1, 1, 1], [1, 1, 1])) is None
    assert crossover([]) is None


def test_crossover_is_behind_the_last_length_where_softmax_wins() -> None:
    found = crossover(timings([2, 1, 4], [1, 2, 1]))
    assert found is not None
    assert 256 < found < 512


def test_both_sides_are_timed_at_every_length() -> None:
    rows = time_attention(SPEC, lengths=(16, 64), seconds=0.05)
    assert [row["length"] for row in rows] == [16, 64]
    for row in rows:
        for side in ("softmax", "kernel"):
            low, high = row[f"{side}_quartiles"]  # type: ignore[literal-required]
            assert 0 < low <= row[f"{side}_ms"] <= high  # type: ignore[literal-required]
            assert 1 <= row[f"{side}_repeats"] <= 50  # type: ignore[literal-required]


def test_the_budget_is_kept() -> None:
    start = time.perf_counter()
    time_attention(SPEC, lengths=(16, 32, 64), seconds=0.3)
    assert time.perf_counter() - start < 3


def test_a_machine_that_turns_slow_cannot_stretch_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    calls = [0]

    def call() -> None:
        calls[0] += 1
        # The first four, two of each side, set the counts.
        clock[0] += 0.001 if calls[0] <= 4 else 1.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    row = attention._time_pair(16, call, call, 1.0)
    assert row["softmax_repeats"] == row["kernel_repeats"] == 3


def test_one_slow_first_call_does_not_cut_the_number_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    times = iter([5.0])

    def call() -> None:
        clock[0] += next(times, 0.1)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert attention._repeats(call, 1.0) in (9, 10)


def test_models_are_timed_within_their_positions_and_keep_their_mode() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    teacher, student = BertModel(config).train(), BertModel(config).eval()
    rows = time_models(teacher, student, seconds=0.05)
    assert [row["length"] for row in rows] == [16, 32, 64]
    assert (teacher.training, student.training) == (True, False)
    with pytest.raises(KernelformerError, match="knows 64 positions, got a length of 128"):
        time_models(teacher, student, lengths=(128,))


def test_lengths_are_powers_of_two_that_fit() -> None:
    assert lengths_up_to(514) == (128, 256, 512)
    assert lengths_up_to(100) == (16, 32, 64)
    assert lengths_up_to(10) == (10,)
    assert lengths_up_to(10**6) == LENGTHS
