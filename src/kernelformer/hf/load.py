"""Load a model that was converted and saved by ``save_pretrained``, kernels included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from kernelformer.errors import KernelformerError
from kernelformer.hf.convert import attach
from kernelformer.hf.file_checks import check_finite, check_size, told_in_one_line
from kernelformer.hf.interface import NAME, register
from kernelformer.hf.mean_classifier import BertForMeanClassification
from kernelformer.hf.mean_pairs import BertForMeanPairs
from kernelformer.hf.record import check_record
from kernelformer.hf.sites import kernels

__all__ = ["load", "read_config"]


def load(
    path: str | Path,
    model_class: type[PreTrainedModel] | None = None,
    *,
    own_kernel: str | None = None,
    num_labels: int | None = None,
    dtype: torch.dtype | None = None,
    device_map: str | None = None,
) -> PreTrainedModel:
    """The model saved at ``path``, with its kernels, bit-identical, in eval mode.

    Args:
        path: a folder, or a hub name, written by ``model.save_pretrained`` after ``kernelformer.convert``.
        model_class: the transformers class to load into; None is the class that was saved.
        own_kernel: "module:Class", where the model was converted with a kernel of yours. No module that only the
            folder names is ever imported.
        num_labels: classes of a classifier whose head the folder does not hold yet; None is what its config says.
        dtype: of the weights; None is the one that was saved.
        device_map: as transformers' ``from_pretrained`` takes it; None is the CPU.

    Raises:
        KernelformerError: nothing there, no kernel promised or kernels absent from the weights, or written by a newer
            version of kernelformer.
    """
    config = read_config(path)
    record: dict[str, Any] | None = getattr(config, "kernelized", None)
    if not record:
        raise KernelformerError(
            f"{path} holds no kernel attention: load it with transformers, then kernelformer.convert"
        )
    check_record(record, path)
    if ":" in str(record.get("kernel")) and record["kernel"] != own_kernel:
        raise KernelformerError(
            f"{path} was converted with a kernel that is not kernelformer's, {record['kernel']!r}, got "
            f"own_kernel={own_kernel!r}: name it, if you trust that module to be imported"
        )
    register()
    plain = _class_of(config) if model_class is None else model_class
    check_size(lambda: plain(config), config, path)

    class WithKernels(plain):  # type: ignore[misc, valid-type]
        """Grows kernels before the weights are read; its instance becomes a plain one again below."""

        def post_init(self) -> None:
            attach(self, record or {})
            super().post_init()

    WithKernels.__name__ = plain.__name__
    with told_in_one_line(f"{path} could not be read"):
        model, info = WithKernels.from_pretrained(
            path,
            dtype=dtype,
            device_map=device_map,
            attn_implementation=NAME,
            output_loading_info=True,
            use_safetensors=True,
            trust_remote_code=False,
            **({} if num_labels is None else {"num_labels": num_labels}),
        )
    # A head of another class may be fresh, a kernel or a layer of the saved class may not.
    absent = sorted(key for key in info["missing_keys"] if ".kernel." in key or model_class is None)
    if absent:
        raise KernelformerError(
            f"{path} promises kernels or layers that its weights do not hold ({absent[0]} and {len(absent) - 1} more): "
            "save the model again with save_pretrained after kernelformer.convert"
        )
    model.__class__ = plain
    for kernel in kernels(model).values():
        kernel.reset_floored()
    return check_finite(model.eval(), str(path))  # type: ignore[no-any-return]


def read_config(name: str | Path) -> PretrainedConfig:
    """The config of a folder or hub name.

    Raises:
        KernelformerError: nothing there that transformers reads.
    """
    there, words = Path(name).exists(), str(name)
    if there and not (Path(name) / "config.json").is_file():
        raise KernelformerError(
            f"the model {name} is no folder with a config.json: give one that save_pretrained wrote"
        )
    if not there and (words.count("/") > 1 or words.startswith(("/", "./", "../", "~"))):
        raise KernelformerError(f"there is no model folder {name}")
    what = f"the model {name} could not be read"
    with told_in_one_line(what if there else f"there is no folder {name}, and of that name on the hub {what}"):
        config: PretrainedConfig = AutoConfig.from_pretrained(name, trust_remote_code=False)
    return config


_OWN = {kind.__name__: kind for kind in (BertForMeanClassification, BertForMeanPairs)}


def _class_of(config: PretrainedConfig) -> Any:
    names = config.architectures or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise KernelformerError(f"architectures in config.json must be names of classes, got {names!r}")
    found = _OWN.get(names[0], getattr(transformers, names[0], None)) if names else None
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        raise KernelformerError(f"the config names no model class of transformers, got {names}: give model_class=")
    return found
