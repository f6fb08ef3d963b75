"""Training in two processes: both end with the same weights, which are those of one process with the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = """
import copy, json, os, sys, torch, transformers
import torch.distributed as dist
import kernelformer as kf
from kernelformer.learn import Schedule, distill, finetune
from kernelformer.learn.finetuning import logit_loss

torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, intermediate_size=37, initializer_range=0.3)
teacher = transformers.LlamaForCausalLM(config).eval()
student = copy.deepcopy(teacher)
kf.convert(student.eval(), "hedgehog", 8, window=4)
ids = torch.randint(50, (16, 20), generator=torch.Generator().manual_seed(1))
world = int(os.environ.get("WORLD_SIZE", 1))
# One process takes in one step what two take together.
size = 4 // world
batches = [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids.split(size)]
schedule = Schedule(steps=4, kernel_learning_rate=1e-2, learning_rate=1e-2, precision="float32")
sums = {}
finetune(student, teacher, batches, schedule, mode="qkv", objective=logit_loss)
sums["finetuned"] = {name: float(p.double().abs().sum()) for name, p in student.named_parameters()}
distill(student, batches, schedule)
sums["distilled"] = {name: float(p.double().abs().sum()) for name, p in student.named_parameters()}
rank = os.environ.get("RANK", "0")
with open(f"{sys.argv[1]}/{world}-{rank}.json", "w") as file:
    json.dump(sums, file)
if dist.is_initialized():
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command in ([sys.executable], torchrun):
        done = subprocess.run(
            [*command, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    one, first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("1-0", "2-0", "2-1"))
    assert first == second
    # The relative errors of distillation are ratios, whose mean over ranks is not that of the whole batch.
    for stage, tolerance in (("finetuned", 1e-4), ("distilled", 5e-2)):
        alone, together = (torch.tensor(list(sums[stage].values())) for sums in (one, first))
        torch.testing.assert_close(together, alone, rtol=tolerance, atol=tolerance)
    assert one["finetuned"] != one["distilled"]
