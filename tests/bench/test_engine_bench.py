"""The speed table: floors by count, rivals that compute the same thing, figures that are read back."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional as F

import kernelformer as kf
from kernelformer.bench.engine import Setting, main, measure, table
from kernelformer.bench.floors import FORMS, Rates, floor_seconds, measure_rates
from kernelformer.bench.rivals import find_rival
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


def test_rates_are_those_of_a_machine():
    rates = measure_rates(torch.float32, seconds=0.0)
    assert 1e8 < rates.products < 1e15
    assert 1e8 < rates.copies < 1e14


def test_every_form_is_measured():
    result = json.loads(json.dumps(measure(SMALL)))
    rows = {(row["form"], row["kernel"], row["length"]): row for row in result["rows"]}
    assert len(rows) == len(FORMS) * 2 * 2
    for row in rows.values():
        assert row["seconds"] > 0
        assert row["floor"] > 0
        assert row["rivals"]["sdpa"] > 0
    text = table(result)
    assert len(text.splitlines()) == 1 + len(rows)
    row = rows["causal", "elu", 64]
    assert f"{row['seconds'] / row['floor']:.2f}" in text


def test_sdpa_is_the_teacher():
    q, k, v = torch.randn(3, 1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    for causal in (False, True):
        rival = find_rival("sdpa", 8, 8, causal=causal)
        assert torch.equal(rival(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def test_missing_rivals_are_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "performer_pytorch", None)
    reason = find_rival("performer-pytorch", 8, 8, causal=False)
    assert isinstance(reason, str)
    assert "performer-pytorch is not installed" in reason
    result = measure(Setting(("causal",), (8,), ("elu",), ("performer-pytorch",), num_heads=1, head_dim=4, seconds=0.0))
    assert "performer-pytorch is not installed" in table(result)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"forms": ("diagonal",)}, "forms: expected some of bidirectional"),
        ({"rivals": ("nobody",)}, "rivals: expected"),
        ({"dtype": "float16"}, "dtype: expected"),
        ({"lengths": (0,)}, "lengths must be positive"),
    ],
)
def test_unknown_settings(given, message):
    with pytest.raises(kf.KernelformerError, match=message):
        Setting(**given)


def test_command(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    threads = str(torch.get_num_threads())
    main(
        ["--forms", "causal", "--lengths", "8", "16", "--kernels", "elu", "--rivals", "sdpa", "--seconds", "0",
         "--threads", threads, "-o", str(tmp_path)]
    )  # fmt: skip
    assert "× sdpa" in capsys.readouterr().out
    assert json.loads((tmp_path / "engine.json").read_text())["rows"][1]["length"] == 16
    assert "<svg" in (tmp_path / "engine.svg").read_text()
