"""Measures peak memory; a process of its own: ``python -m kernelformer.bench.worker``, JSON in, JSON out.

In: {"case": {...}}, {"step": {...}}, {"spec": {...}, "implementation": "softmax" | "kernel"} or {"folder": ...}, with
"lengths", "seed", "threads".
Out: {"mib": [...] | null, "reason": null | why not}.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelformer.bench.case import Case
from kernelformer.bench.clock import Call
from kernelformer.bench.spec import AttentionSpec, draw_qkv, draw_tokens

__all__ = ["main"]


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    # Whatever libraries print must not mix with the answer.
    with contextlib.redirect_stdout(sys.stderr):
        answer = _answer(request)
    json.dump(answer, sys.stdout)


@torch.no_grad()
def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(request["threads"])
    lengths: list[int] = request["lengths"]
    prepare: Callable[[int], Call] | str
    if "case" in request:
        prepare = _case(Case(**request["case"]), min(lengths))
    elif "step" in request:
        prepare = _step(request["step"])
    else:
        prepare = _attention(request) if "spec" in request else _model(request)
    if isinstance(prepare, str):
        return {"mib": None, "reason": prepare}
    try:
        # Once at the shortest length first: thread pools and lazily loaded code are no part of attention.
        _peak_mib(prepare(min(lengths)))
        return {"mib": [_peak_mib(prepare(length)) for length in lengths], "reason": None}
    except OSError as error:
        return {"mib": None, "reason": f"the peak cannot be reset here ({error}); it needs /proc/self/clear_refs"}


def _case(case: Case, shortest: int) -> Callable[[int], Call] | str:
    first = case.prepare(shortest)
    if isinstance(first, str):
        return first

    def prepare(length: int) -> Call:
        call = case.prepare(length)
        assert not isinstance(call, str)
        return call

    return prepare


def _step(step: Mapping[str, Any]) -> Callable[[int], Call]:
    # Attention alone is measured without loading transformers.
    from kernelformer.bench.training_step import TrainingStep

    return TrainingStep(**step).prepare


def _attention(request: Mapping[str, Any]) -> Callable[[int], Call]:
    spec = AttentionSpec(**request["spec"])
    attend: Callable[[Tensor, Tensor, Tensor], Tensor] = F.scaled_dot_product_attention
    if request["implementation"] == "kernel":
        attend = spec.build(request["seed"])

    def prepare(length: int) -> Call:
        q, k, v = draw_qkv(spec, length, request["seed"])
        return lambda: attend(q, k, v)

    return prepare


def _model(request: Mapping[str, Any]) -> Callable[[int], Call]:
    from transformers import AutoConfig, AutoModel

    from kernelformer.hf import load

    converted = "kernelized" in AutoConfig.from_pretrained(request["folder"], trust_remote_code=False).to_dict()
    if converted:
        model = load(request["folder"], own_kernel=request["own_kernel"])
    else:
        model = AutoModel.from_pretrained(request["folder"], trust_remote_code=False).eval()

    def prepare(length: int) -> Call:
        ids = draw_tokens(model.config.vocab_size, length, request["seed"])
        mask = torch.ones_like(ids)
        return lambda: model(input_ids=ids, attention_mask=mask)

    return prepare


def _peak_mib(call: Call) -> float:
    # 5 sets the high-water mark back to what is in use now (proc(5)).
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status_kib("VmRSS")
    call()
    return (_status_kib("VmHWM") - before) / 1024


def _status_kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise OSError(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    main()
