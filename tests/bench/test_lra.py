"""The study of the Long Range Arena: every kernel once, four with all seeds; the two protocols stay apart."""

from __future__ import annotations

import pytest
import torch

from kernelformer.bench.lra import (
    KERNELS,
    PAPER,
    REPEATED,
    SCALES,
    Protocol,
    Scale,
    build_encoder,
    lra_markdown,
    run_study,
)
from kernelformer.bench.rows import Rows
from kernelformer.tasks.listops import LISTOPS_SHORT, draw_listops
from kernelformer.tasks.sequences import Sequences, SequenceTask

TINY = Protocol(1, 2, 16, 16, 16, steps=5, batch_size=4, learning_rate=1e-3, warmup=0.2)


def listops(_):
    return draw_listops(LISTOPS_SHORT, (20, 8, 8), 0)


def test_every_kernel_that_is_not_gated_takes_part():
    assert len(KERNELS) == len(set(KERNELS)) and set(PAPER) <= set(KERNELS) and "rfa_gated" not in KERNELS


def test_the_protocols():
    """The small one is 2 layers of 2 heads of width 32 for all tasks; the arena's differ from task to task."""
    small, arena = ({name: made[1] for name, made in SCALES[scale].tasks.items()} for scale in ("pytorch", "paper"))
    assert small.keys() == arena.keys() == {"listops", "text", "retrieval", "image", "pathfinder"}
    assert {(p.num_layers, p.num_heads, p.width, p.feed_forward) for p in small.values()} == {(2, 2, 64, 128)}
    assert arena["listops"].width == 512 and arena["retrieval"].width == 128 and arena["image"].num_layers == 1


@pytest.mark.parametrize("kernel", ["softmax", "flexformer_n", "cosformer"])
def test_rows_share_all_weights_but_the_kernels(kernel):
    task = listops(None)
    softmax = dict(build_encoder(task, TINY, "softmax", 1).named_parameters())
    model = dict(build_encoder(task, TINY, kernel, 1).named_parameters())
    assert all(torch.equal(model[name], weight) for name, weight in softmax.items())


def test_pairs_have_two_towers():
    pairs = Sequences([[[1, 2], [3]], [[4], [5, 6]]], [0, 1])
    task = SequenceTask(pairs, pairs, pairs, vocabulary=7, classes=2, max_length=4)
    assert type(build_encoder(task, TINY, "elu", 0)).__name__ == "BertForMeanPairs"


def test_the_study(tmp_path):
    scale, kept = Scale({"short": (listops, TINY)}), Rows(tmp_path / "rows.jsonl", {})
    kernels = ("softmax", "flexformer_n", "hedgehog", "favor", "elu")
    study = run_study(scale, 2, kept, tmp_path / "checkpoints", kernels=kernels)
    assert [run["kernel"] for run in study["runs"]] == [*REPEATED, *REPEATED, "elu"]
    assert study["tasks"]["short"]["sizes"] == [20, 8, 8]
    assert run_study(scale, 2, kept, tmp_path / "checkpoints", kernels=kernels)["runs"] == study["runs"]
    for run in study["runs"]:
        run["test"] = {"elu": 0.5, "softmax": 0.4}.get(run["kernel"], 0.1)
    lines = lra_markdown(study).splitlines()
    assert lines[2] == "| elu | 50.0 | 50.0 | 17.4 | 62.6 |"
    assert lines[3] == "| softmax | 40.0 ± 0.0 | 40.0 | 37.2 | 65.7 |"
    assert lines[-1].startswith("| commonest class | ")
