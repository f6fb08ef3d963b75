"""The study of a training step: every method once, ratios against both forms of softmax, resumed where it stopped."""

from __future__ import annotations

import pytest
import torch

from kernelformer.bench import efficiency
from kernelformer.bench.efficiency import METHODS, efficiency_markdown, measure_efficiency
from kernelformer.bench.rows import Rows
from kernelformer.bench.training_step import SOFTMAX, TrainingStep

SMALL = {"num_layers": 1, "num_heads": 2, "head_dim": 8, "feed_forward": 16, "num_features": 16}


@pytest.mark.parametrize("method", [*SOFTMAX, "flexformer_n", "cosformer"])
def test_a_step_learns(method):
    step = TrainingStep(method, **SMALL).prepare(32)
    state = torch.random.get_rng_state()
    losses = [step() for _ in range(30)]
    torch.random.set_rng_state(state)
    assert losses[-1] < losses[0]


def test_both_forms_of_softmax_are_one_function():
    """Without their dropout, so that the draws agree."""
    models = [TrainingStep(method, **SMALL)._model(16).eval() for method in SOFTMAX]
    ids = torch.arange(16)[None]
    first, second = (model(input_ids=ids).logits for model in models)
    assert torch.allclose(first, second, atol=1e-5)


def test_every_kernel_that_is_not_gated_is_measured():
    assert len(METHODS) == len(set(METHODS))
    assert {"flexformer_n", "hedgehog", "favor", "constant"} < set(METHODS) and "rfa_gated" not in METHODS


def test_the_study(tmp_path, monkeypatch):
    peaks = {"softmax (eager)": 100.0, "softmax (SDPA)": 20.0, "elu": 16.0}
    monkeypatch.setattr(efficiency, "step_memory", lambda step, _: {"mib": [peaks[step.method]], "reason": None})
    rows = Rows(tmp_path / "rows.jsonl", {})
    small = TrainingStep("elu", **SMALL)
    study = measure_efficiency(1, rows, length=32, methods=("softmax (eager)", "elu"), step=small)
    assert [row["method"] for row in study["rows"]] == ["softmax (SDPA)", "softmax (eager)", "elu"]
    assert study == measure_efficiency(1, rows, length=32, methods=("softmax (eager)", "elu"), step=small)
    for row in study["rows"]:
        row["seconds"], row["sdpa_seconds"] = {"softmax (eager)": (6.0, 2.0), "elu": (1.0, 2.0)}.get(
            row["method"], (2.0, 2.0)
        )
    lines = efficiency_markdown(study).splitlines()
    assert lines[2] == "| elu | 1.00 | 6.00 | 2.00 | 16 | 16% | 80% |"
    assert lines[4].startswith("| softmax (eager) | 6.00 | 1.00 | 0.33 | 100 | 100% |")
