"""Which extra of kernelformer brings which package, and what for."""

from __future__ import annotations

from typing import Final

__all__ = ["EXTRAS", "missing"]

EXTRAS: Final = {
    "accelerate": ("cli", "training"),
    "datasets": ("cli", "text by the name of a data set"),
    "gguf": ("gguf", "import-gguf"),
    "jinja2": ("cli", "report pages"),
    "lm_eval": ("eval", "lm-evaluation-harness on converted decoders"),
    "matplotlib": ("cli", "plots"),
    "onnx": ("onnx", "export to ONNX"),
    "peft": ("lora", "LoRA beside the kernels"),
    "rich": ("cli", "tables in a terminal"),
    "scipy": ("cli", "statistics"),
    "sentence_transformers": ("sentences", "converted encoders in sentence-transformers"),
    "sklearn": ("classifier", "probes, metrics and KernelClassifier"),
    "tensorboard": ("tensorboard", "loss curves by --tensorboard"),
    "tomli": ("cli", "options from files"),
    "transformers": ("cli", "converting, training and loading models"),
    "triton": ("gpu", "fused kernels on a CUDA device"),
    "typer": ("cli", "the command line"),
    "yaml": ("cli", "options from files"),
}
"""Name to import: (extra, purpose)."""


def missing(package: str) -> str:
    """That it is, and how to get it."""
    return f"{package} is missing: pip install 'kernelformer[{EXTRAS[package][0]}]'"
