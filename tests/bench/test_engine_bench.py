"""The bench: floors by count, rivals that compute the same thing, figures that are read back."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

import kernelformer as kf
from kernelformer.bench import engine
from kernelformer.bench.case import Case
from kernelformer.bench.clock import median_seconds
from kernelformer.bench.crossover import measured_crossover
from kernelformer.bench.engine import Setting, measure
from kernelformer.bench.engine_table import markdown, reasons, tables
from kernelformer.bench.floors import FORMS, Rates, floor_mib, floor_seconds, measure_rates
from kernelformer.bench.memory import case_memory
from kernelformer.bench.rivals import RIVALS, find_rival
from kernelformer.feature_maps import Elu, Favor, Hedgehog

SMALL = Setting(
    lengths=(16, 64),
    kernels=("elu", "hedgehog"),
    rivals=("sdpa",),
    num_heads=2,
    head_dim=8,
    num_features=8,
    seconds=0.0,
)


def test_operations_are_counted():
    rates = Rates(products=1e9, copies=1e30)
    favor, hedgehog = Favor(64, 8, 128), Hedgehog(64, 8, 128)
    per_token = 4 * 2 * 8 * 64 * 128
    assert floor_seconds("bidirectional", favor, 10, 64, rates) == pytest.approx(10 * per_token / 1e9)
    assert floor_seconds("bidirectional", hedgehog, 10, 64, rates) == pytest.approx(10 * 0.75 * per_token / 1e9)
    assert floor_seconds("bidirectional", Elu(64, 8), 10, 64, rates) == pytest.approx(10 * 4 * 8 * 64 * 64 / 1e9)
    causal = floor_seconds("causal", favor, 10, 64, rates)
    assert causal == pytest.approx(10 * (per_token + 2 * 8 * 64 * 192) / 1e9)
    assert floor_seconds("training", favor, 10, 64, rates) == pytest.approx(3 * causal)


def test_bytes_are_counted():
    rates = Rates(products=1e30, copies=1e9)
    favor = Favor(64, 8, 128)
    assert floor_seconds("bidirectional", favor, 10, 64, rates) == pytest.approx(10 * 4 * 8 * 64 * 4 / 1e9)
    assert floor_seconds("bidirectional", favor, 10, 64, rates, itemsize=2) == pytest.approx(10 * 4 * 8 * 64 * 2 / 1e9)
    step = floor_seconds("step", favor, 10, 64, rates)
    assert step == floor_seconds("step", favor, 10_000, 64, rates) == pytest.approx((8192 + 2 * 4 * 65536) / 1e9)


def test_memory_is_counted():
    favor = Favor(64, 8, 128)
    output = 8 * 1024 * 64 * 4 / 2**20
    assert floor_mib("causal", favor, 1024, 64) == output
    assert floor_mib("training", favor, 1024, 64) == 4 * output
    assert floor_mib("causal", favor, 1024, 64, itemsize=2) == output / 2
    assert floor_mib("step", favor, 10_000, 64) == 4 * 8 * 128 * 64 / 2**20


def test_rates_are_those_of_a_machine():
    rates = measure_rates(torch.float32, seconds=0.0)
    assert 1e8 < rates.products < 1e15
    assert 1e8 < rates.copies < 1e14


def test_calls_take_turns_at_least_three_times():
    order = []
    times = median_seconds({name: lambda name=name: order.append(name) for name in "ab"}, 0.0)
    assert order == ["a", "b"] * 4
    assert set(times) == {"a", "b"}


def test_crossover_is_where_the_lead_starts_for_good():
    assert measured_crossover([(100, 1.0, 2.0), (400, 2.0, 1.0)]) == pytest.approx(200.0)
    assert measured_crossover([(400, 2.0, 1.0), (100, 2.0, 1.0)]) == 100.0
    assert measured_crossover([(100, 2.0, 1.0), (400, 1.0, 2.0)]) is None


def test_every_form_is_measured():
    result = json.loads(json.dumps(measure(SMALL)))
    rows = {(row["form"], row["kernel"], row["length"]): row for row in result["rows"]}
    assert len(rows) == len(FORMS) * 2 * 2
    for row in rows.values():
        assert row["seconds"] > 0
        assert row["floor"] > 0
        assert row["rivals"]["sdpa"] > 0
        assert row["mib"] is None
    times, crossovers = tables(result)
    assert len(times.rows) == len(rows)
    assert len(crossovers.rows) == len(FORMS) * 2
    row = rows["causal", "elu", 64]
    cells = times.rows[list(rows).index(("causal", "elu", 64))]
    assert f"{row['seconds'] / row['floor']:.2f}" in cells
    assert all(len(cells) == len(table.heads) for table in (times, crossovers) for cells in table.rows)
    assert len(markdown(times).splitlines()) == 2 + len(rows)


def test_a_step_is_one_token_after_the_context(monkeypatch):
    """Without rounding to compare: what comes out for the last token of the context, appended once more."""
    case = Case("step", "elu", num_heads=2, head_dim=8)
    out, state = case.prepare(5)()
    assert out.shape == (1, 2, 1, 8)
    assert state.length == 6
    attention = kf.KernelAttention(case.feature_map(), causal=True, below_crossover="ignore")
    again = [torch.cat([x, x[:, :, -1:]], dim=2) for x in case.draw(5)]
    torch.testing.assert_close(out, attention(*again)[:, :, -1:])


def test_memory_of_a_step_is_what_is_kept():
    case = Case("step", "favor", num_heads=2, head_dim=8, num_features=16)
    assert case.kept_mib(10) == case.kept_mib(1000) == pytest.approx(4 * 2 * (16 * 8 + 16 + 1 + 1) / 2**20, rel=0.02)
    cache = case.rival("sdpa", 16)
    assert cache.kept_mib(1000) == 2 * 2 * 1000 * 8 * 4 / 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_peak_of_training_holds_the_gradients():
    case = Case("training", "elu", num_heads=8, head_dim=64)
    forward, training = (
        case_memory(dataclasses.replace(case, form=form), (2048,))["mib"][0] for form in ("causal", "training")
    )
    assert forward >= floor_mib("causal", Elu(64, 8), 2048, 64)
    assert training >= floor_mib("training", Elu(64, 8), 2048, 64) > forward / 4


def test_memory_joins_its_rows(monkeypatch):
    asked = []

    def peaks(case, lengths):
        asked.append(case)
        if case.method == "sdpa":
            return {"mib": None, "reason": "no peak here"}
        return {"mib": [float(length) for length in lengths], "reason": None}

    monkeypatch.setattr(engine, "case_memory", peaks)
    result = measure(dataclasses.replace(SMALL, forms=("causal",), kernels=("hedgehog", "favor"), memory=True))
    assert [row["mib"] for row in result["rows"]] == [16.0, 64.0] * 2
    assert [case.method for case in asked] == ["hedgehog", "sdpa", "favor"]
    assert reasons(result) == ["no peak here"]
    assert tables(result)[-1].rows[1] == ["causal", "hedgehog", "64", "64", f"{2 * 64 * 8 * 4 / 2**20:.3g}", "–"]


def test_sdpa_is_the_teacher():
    q, k, v = torch.randn(3, 1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    for causal in (False, True):
        rival = find_rival("sdpa", 8, 8, causal=causal)
        assert torch.equal(rival(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def _plain_scan(q, k, v, g, scale):
    """Layout [B, N, H, D], as flash-linear-attention has it."""
    assert not g.any() and scale == 1.0
    weights = torch.einsum("bihm,bjhm->bhij", q, k).tril()
    return torch.einsum("bhij,bjhd->bihd", weights, v), None


@pytest.mark.parametrize("num_features", [8, 12, 40])
def test_flash_linear_attention_gets_features_of_that_width(monkeypatch, num_features):
    monkeypatch.setitem(sys.modules, "fla.ops.simple_gla", SimpleNamespace(chunk_simple_gla=_plain_scan))
    q, k, v = torch.randn(3, 1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    out = find_rival("flash-linear-attention", 8, num_features, causal=True, device="cuda")(q, k, v)
    wide_q, wide_k = ((F.elu(torch.cat([x, -x] * 3, -1)) + 1)[..., :num_features] for x in (q, k))
    weights = (wide_q @ wide_k.mT).tril()
    torch.testing.assert_close(out, weights @ v / weights.sum(-1, keepdim=True))


def test_what_a_rival_lacks_is_named(monkeypatch):
    assert find_rival("flash-linear-attention", 8, 8, causal=True) == "flash-linear-attention needs a CUDA device"
    assert "no bidirectional form" in find_rival("flash-linear-attention", 8, 8, causal=False, device="cuda")
    monkeypatch.setitem(sys.modules, "performer_pytorch", None)
    reason = find_rival("performer-pytorch", 8, 8, causal=False)
    assert "performer-pytorch is not installed" in reason
    assert reason.endswith(RIVALS["performer-pytorch"].install)
    result = measure(Setting(("causal",), (8,), ("elu",), ("performer-pytorch",), num_heads=1, head_dim=4, seconds=0.0))
    assert reasons(result) == [reason]
    assert tables(result)[0].heads[-1] == "/ floor"


def test_a_rival_that_fails_says_so(monkeypatch):
    def refuse(q, k, v):
        raise RuntimeError("expected float,\n  got half")

    monkeypatch.setitem(RIVALS, "sdpa", RIVALS["sdpa"]._replace(build=lambda *_: refuse))
    result = measure(dataclasses.replace(SMALL, forms=("causal",), lengths=(8,), kernels=("elu",)))
    assert reasons(result) == ["sdpa failed: expected float, got half"]


def test_a_slow_rival_is_called_once(monkeypatch):
    called = []

    def slow(q, k, v):
        called.append(time.sleep(0.5))

    monkeypatch.setitem(RIVALS, "sdpa", RIVALS["sdpa"]._replace(build=lambda *_: slow))
    result = measure(dataclasses.replace(SMALL, forms=("causal",), lengths=(8,), kernels=("elu",), seconds=0.1))
    assert len(called) == 1
    assert result["rows"][0]["rivals"]["sdpa"] > 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"forms": ("diagonal",)}, "forms: expected some of bidirectional"),
        ({"rivals": ("nobody",)}, "rivals: expected"),
        ({"dtype": "int8"}, "dtype: expected"),
        ({"lengths": (0,)}, "lengths must be positive"),
        ({"kernels": ("hedgehogg",)}, "hedgehog"),
        ({"kernels": ()}, "must each name one"),
    ],
)
def test_unknown_settings(given, message):
    with pytest.raises(kf.KernelformerError, match=message):
        Setting(**given)


def test_half_precision_is_measured():
    result = measure(dataclasses.replace(SMALL, dtype="bfloat16", forms=("causal",), kernels=("elu",)))
    assert all(row["rivals"]["sdpa"] > 0 for row in result["rows"])
