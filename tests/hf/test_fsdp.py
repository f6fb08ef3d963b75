"""A converted model sharded by FSDP2 takes the step that it takes in one process."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

SCRIPT = """
import copy, transformers
import kernelformer as kf
from kernelformer.engine import blockwise
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

# Blocks so short that features are computed again in the backward pass, from parameters that were freed in between.
blockwise.BLOCK_ELEMENTS = 512
torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, intermediate_size=37, initializer_range=0.3)
model = kf.convert(transformers.LlamaForCausalLM(config).eval(), "hedgehog", 8)
ids = torch.randint(50, (4, 100), generator=torch.Generator().manual_seed(1))

def step(model, ids):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    return float(loss)

alone, before = copy.deepcopy(model), {name: p.detach().clone() for name, p in model.named_parameters()}
step(alone, ids)
mesh = init_device_mesh("cpu", (world,))
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
step(model, ids.chunk(world)[rank])
expected = dict(alone.named_parameters())
found["kernels"] = sum(".kernel." in name for name in expected)
found["sharded"] = all(p.to_local().numel() < p.numel() for p in model.parameters())
moved = {name: float((expected[name] - before[name]).abs().max()) for name in expected}
found["moved"] = min(moved.values())
found["error"] = max(
    float((p.full_tensor() - expected[name]).abs().max()) / moved[name] for name, p in model.named_parameters()
)
"""


def test_a_sharded_step_is_the_step(run_ranks):
    for found in run_ranks(SCRIPT, 2):
        assert found["kernels"] == 4
        assert found["sharded"]
        assert found["moved"] > 1e-4
        assert found["error"] < 5e-3
