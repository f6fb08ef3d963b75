"""Converted decoders in lm-evaluation-harness: its own command, with one more kind of model.

    python -m kernelformer.hf.harness run --model kernelformer --model_args pretrained=converted --tasks arc_easy

``--model hf`` would read the same folder as a plain model, without its kernels. Needs the extra ``eval``.
"""

from __future__ import annotations

from typing import Any

import torch
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from kernelformer.hf.load import load

__all__ = ["KernelformerLM"]


@register_model("kernelformer")
class KernelformerLM(HFLM):  # type: ignore[misc]
    """The harness's model of transformers, read by ``kernelformer.load``; ``own_kernel=module:Class`` as there."""

    def _create_model(self, pretrained: str, dtype: str = "auto", own_kernel: str | None = None, **_: Any) -> None:
        self._model = load(pretrained, dtype=None if dtype == "auto" else getattr(torch, dtype), own_kernel=own_kernel)


if __name__ == "__main__":
    cli_evaluate()
