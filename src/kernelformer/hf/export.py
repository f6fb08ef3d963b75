"""A converted encoder as a graph without Python: torch.export and ONNX, for any batch and length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from transformers import PreTrainedModel

from kernelformer.errors import KernelformerError, UnsupportedModelError
from kernelformer.hf.sites import kernels

__all__ = ["export_onnx", "export_program"]

_NAMES = ("input_ids", "attention_mask")


def export_program(model: PreTrainedModel) -> ExportedProgram:
    """``model`` from input_ids and attention_mask, both int64 [B, N], to last_hidden_state [B, N, hidden].

    The graph holds the linear form of every kernel, whatever its length.

    Raises:
        UnsupportedModelError: a decoder, whose state is handed on by Python; or PyTorch cannot follow the model.
        KernelformerError: not converted, or its sequences are split over processes.
    """
    wrapped, inputs, shapes = _prepare(model)
    with torch.no_grad(), _told(model):
        return torch.export.export(wrapped, (), inputs, dynamic_shapes=shapes, strict=False)


def export_onnx(model: PreTrainedModel, path: str | Path) -> Path:
    """The same as an ONNX file, for onnxruntime and its like. It needs the packages onnx and onnxscript.

    Raises:
        UnsupportedModelError, KernelformerError: as :func:`export_program`, or a package is missing.

    Returns:
        ``path``.
    """
    wrapped, inputs, shapes = _prepare(model)
    with torch.no_grad(), _told(model):
        torch.onnx.export(
            wrapped,
            (),
            str(path),
            kwargs=inputs,
            dynamic_shapes=shapes,
            dynamo=True,
            input_names=list(_NAMES),
            output_names=["last_hidden_state"],
            verbose=False,
        )
    return Path(path)


class _Encoder(nn.Module):
    """Tensors in, one tensor out."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        out: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return out


def _prepare(model: PreTrainedModel) -> tuple[nn.Module, dict[str, Tensor], dict[str, Any]]:
    if not getattr(model.config, "kernelized", None):
        raise KernelformerError("this model has no kernel attention: kernelformer.convert it first")
    if any(kernel.causal for kernel in kernels(model).values()):
        raise UnsupportedModelError(
            "a decoder hands a state from token to token, which a graph without Python does not hold: only encoders "
            "are exported"
        )
    if any(kernel.group is not None for kernel in kernels(model).values()):
        raise KernelformerError("a model whose sequences are split is not exported: split_sequence(model, None) first")
    longest = int(getattr(model.config, "max_position_embeddings", 1 << 20))
    batch, length = Dim("batch", min=1, max=1 << 16), Dim("length", min=2, max=longest)
    ids = torch.ones(2, min(8, longest), dtype=torch.int64, device=model.device)
    # Two tensors: one given twice would be one input of the graph.
    inputs = {name: ids.clone() for name in _NAMES}
    return _Encoder(model.eval()), inputs, {name: {0: batch, 1: length} for name in _NAMES}


@contextmanager
def _told(model: PreTrainedModel) -> Iterator[None]:
    """What PyTorch's exporters raise about a model they can't follow, in one line of ours."""
    try:
        yield
    except ImportError as error:
        raise KernelformerError(f"export needs {error.name}: pip install 'kernelformer[onnx]'") from error
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        told = " ".join(str(error).split())[:300]
        raise UnsupportedModelError(f"{type(model).__name__} cannot be exported by PyTorch: {told}") from error
