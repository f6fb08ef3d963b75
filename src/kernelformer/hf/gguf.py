"""From a GGUF file, the format of llama.cpp, to a folder that every transformers call reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kernelformer.errors import KernelformerError

__all__ = ["import_gguf"]

_MAGIC = b"GGUF"


def import_gguf(source: str | Path, folder: str | Path, *, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write the decoder in ``source`` as a safetensors folder with its tokenizer, once, since reading GGUF is slow.

    transformers dequantises the weights; a model read that way refuses to be saved, so they are put into a fresh one.

    Args:
        source: a .gguf file.
        folder: to write; whole or not at all.
        dtype: of the weights written; quantised weights lose nothing in bfloat16 that their blocks still had.

    Returns:
        ``folder``.

    Raises:
        KernelformerError: no such file, no GGUF file, an architecture that transformers cannot read, or a folder that
            is there already.
    """
    source, folder = Path(source), Path(folder)
    _check(source, folder)
    try:
        names = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
        model = AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(**names, trust_remote_code=False)
    except ImportError as error:
        raise KernelformerError(
            f"reading GGUF needs the package gguf ({error}): pip install 'kernelformer[gguf]'"
        ) from error
    except (ValueError, OSError, KeyError) as error:
        raise KernelformerError(f"{source} could not be read: {str(error).splitlines()[0]}") from error
    plain = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    fresh = AutoModelForCausalLM.from_config(type(model.config).from_dict(plain))
    fresh.load_state_dict(model.state_dict())
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        fresh.to(dtype).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _check(source: Path, folder: Path) -> None:
    if not source.is_file():
        raise KernelformerError(f"{source}: there is no such file; give a .gguf file")
    with source.open("rb") as file:
        found = file.read(len(_MAGIC))
    if found != _MAGIC:
        raise KernelformerError(f"{source} is no GGUF file: it begins with {found!r}, not {_MAGIC!r}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise KernelformerError(f"the output folder {folder} is there already: choose another, or remove it")
