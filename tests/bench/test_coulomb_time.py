"""Times of learned and vanilla kernels: measured in turns, summed up right."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("sklearn")

from kernelformer.bench import coulomb_time
from kernelformer.bench.coulomb_time import measure_times, times_markdown


def test_every_pair_is_measured(kept):
    rows = measure_times(1, kept, (64, 128))
    assert [row["kernel"] for row in rows][:2] == ["favor", "elu_projected"] and len(rows) == 7
    assert all(min(row["learned_ms"] + row["vanilla_ms"]) > 0 for row in rows)
    assert "`softmaxfeat`" in times_markdown(rows)


def test_ratio_and_slope_are_of_the_times(monkeypatch, kept):
    """Times that are linear in the length, the learned one a tenth longer."""
    monkeypatch.setattr(coulomb_time, "_in_turns", lambda _, q, n: [[0.1 * q.shape[2]] * n, [0.11 * q.shape[2]] * n])
    row = measure_times(3, kept, (10, 100))[0]
    assert row["ratio"] == pytest.approx(1.1) and row["slope"] == pytest.approx(1.0)


def test_learned_particles_are_other_ones():
    attention = coulomb_time.KernelAttention(coulomb_time._feature_map("softmaxfeat"))
    before = attention.feature_map.omega.clone()
    with torch.no_grad():
        coulomb_time._move(attention)
    assert not torch.equal(attention.feature_map.omega, before)
