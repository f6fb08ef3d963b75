"""Models and tokenizers from folders and hub names, converted or not, with errors in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kernelformer.errors import KernelformerError, UnsupportedModelError
from kernelformer.hf.file_checks import check_finite, check_size, told_in_one_line
from kernelformer.hf.fresh import fresh_weights
from kernelformer.hf.load import load, read_config
from kernelformer.hf.mean_classifier import BertForMeanClassification

__all__ = [
    "is_decoder",
    "name_classes",
    "read_classifier",
    "read_decoder",
    "read_teacher",
    "read_tokenizer",
]


def is_decoder(config: PretrainedConfig) -> bool:
    """Whether the folder holds a model that generates text, by the class that was saved.

    BERT and its kind also can be decoders; they are if ``is_decoder`` says so.
    """
    saved = (config.architectures or [""])[0]
    if saved.endswith(("ForCausalLM", "LMHeadModel")):
        return True
    encoders = ("bert", "roberta", "electra", "xlm", "camembert", "ernie", "roformer", "reformer", "bart")
    known = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return known and (getattr(config, "is_decoder", False) or not any(part in config.model_type for part in encoders))


def read_decoder(
    name: str, *, own_kernel: str | None = None, dtype: torch.dtype | None = torch.float32
) -> PreTrainedModel:
    """A decoder with its language-model head, converted or not, in eval mode.

    Args:
        own_kernel: as ``kernelformer.load``.
        dtype: of the weights; None is the one that was saved.

    Raises:
        KernelformerError: nothing there, or no decoder.
    """
    config = read_config(name)
    if not is_decoder(config):
        raise KernelformerError(f"{name} is no decoder ({config.model_type}): this needs a model that generates text")
    if getattr(config, "kernelized", None):
        return load(name, own_kernel=own_kernel, dtype=dtype)
    check_size(lambda: AutoModelForCausalLM.from_config(config), config, name)
    with told_in_one_line(f"the model {name!r} could not be read"):
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    return check_finite(model.eval(), name)  # type: ignore[no-any-return]


def read_teacher(name: str) -> PreTrainedModel:
    """The encoder, or the decoder with its language-model head, to be converted: float32, softmax attention.

    Raises:
        KernelformerError: nothing there, it has kernel attention already, or it has an encoder and a decoder.
    """
    config = read_config(name)
    if config.is_encoder_decoder:
        raise UnsupportedModelError(
            f"{name} has an encoder and a decoder, and T5 and its kind add a position bias to the scores, which no "
            "feature map can express: choose a BERT, RoBERTa, DistilBERT or MiniLM model, or a decoder"
        )
    if getattr(config, "kernelized", None):
        raise KernelformerError(f"{name} has kernel attention already: convert the original model")
    if is_decoder(config):
        return read_decoder(name)
    check_size(lambda: AutoModel.from_config(config), config, name)
    with told_in_one_line(f"the model {name!r} could not be read"):
        model = AutoModel.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
    return check_finite(model.eval(), name)  # type: ignore[no-any-return]


def read_classifier(
    name: str, classes: Sequence[str], *, own_kernel: str | None = None, seed: int = 0
) -> PreTrainedModel:
    """A text classifier in float32 and eval mode, converted or not; an encoder without a head gets a fresh one.

    Args:
        classes: their names, in the order of the logits.
        own_kernel: as ``kernelformer.load``.
        seed: of a fresh head.

    Raises:
        KernelformerError: nothing there, no class of transformers that classifies with it, or a head of other classes.
    """
    config = read_config(name)
    saved = (config.architectures or [""])[0]
    has_head = saved.endswith("Classification")
    if has_head:
        _check_classes(name, config, classes)
    kind: Any = BertForMeanClassification if saved == BertForMeanClassification.__name__ else None
    if kind is None:
        kind = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(config), None)
    if kind is None:
        raise KernelformerError(f"transformers has no text classifier of the kind {config.model_type!r} ({name})")
    with fresh_weights(seed):
        if getattr(config, "kernelized", None):
            model = load(name, kind, own_kernel=own_kernel, num_labels=len(classes), dtype=torch.float32)
        else:
            check_size(lambda: kind(config), config, name)
            with told_in_one_line(f"the model {name!r} could not be read"):
                model = kind.from_pretrained(
                    name,
                    dtype=torch.float32,
                    attn_implementation="sdpa",
                    num_labels=len(classes),
                    trust_remote_code=False,
                )
            check_finite(model.eval(), name)
    return name_classes(model, classes)


def name_classes(model: PreTrainedModel, classes: Sequence[str]) -> PreTrainedModel:
    """Write the names of a classifier's classes into its config; returns the model."""
    model.config.id2label = dict(enumerate(classes))
    model.config.label2id = {label: number for number, label in enumerate(classes)}
    return model


def _check_classes(name: str, config: PretrainedConfig, classes: Sequence[str]) -> None:
    known = [label for _, label in sorted((config.id2label or {}).items())]
    anonymous = all(label.startswith("LABEL_") for label in known)
    if len(known) != len(classes) or not (anonymous or known == list(classes)):
        raise KernelformerError(
            f"{name} classifies as {', '.join(known)}, the texts as {', '.join(classes)}: give texts of the same "
            "labels (keep_labels leaves others out), or an encoder without a head"
        )


def read_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub name; text is padded by the end token where there is no other.

    Raises:
        KernelformerError: nothing there that transformers reads.
    """
    with told_in_one_line(f"no tokenizer in {name!r}"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
