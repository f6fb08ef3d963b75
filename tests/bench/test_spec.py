"""A layer is rebuilt from plain data."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch

from kernelformer.bench.spec import AttentionSpec, draw_qkv, draw_tokens
from kernelformer.errors import KernelformerError

RECORD = {
    "kernel": "flexformer_n",
    "num_features": 6,
    "options": {"floor": 0.2},
    "layers": [
        {"converted": False, "num_heads": 9, "head_dim": 9},
        {"converted": True, "num_heads": 2, "head_dim": 4},
    ],
}


def test_the_first_converted_layer_is_taken_with_its_options() -> None:
    spec = AttentionSpec.of_record(RECORD)
    assert spec == AttentionSpec("flexformer_n", head_dim=4, num_heads=2, num_features=6, options={"floor": 0.2})
    built = spec.build(0).feature_map
    assert (built.head_dim, built.num_heads, built.num_features, built.floor) == (4, 2, 6, 0.2)


def test_a_spec_survives_json_and_builds_the_same_layer() -> None:
    spec = AttentionSpec.of_record(RECORD)
    again = AttentionSpec(**json.loads(json.dumps(asdict(spec))))
    q, k, v = draw_qkv(spec, 5, seed=1)
    assert torch.equal(spec.build(3)(q, k, v), again.build(3)(q, k, v))
    assert not torch.equal(spec.build(3)(q, k, v), again.build(4)(q, k, v))


def test_none_leaves_the_number_of_features_to_the_map() -> None:
    assert AttentionSpec("elu", head_dim=4, num_heads=2).build(0).feature_map.num_features == 4


def test_a_model_without_kernels_is_refused() -> None:
    with pytest.raises(KernelformerError, match="no converted attention layer"):
        AttentionSpec.of_record({**RECORD, "layers": RECORD["layers"][:1]})


def test_tokens_are_of_the_vocabulary() -> None:
    ids = draw_tokens(7, 1000, seed=0)
    assert ids.shape == (1, 1000)
    assert (int(ids.min()), int(ids.max())) == (0, 6)
