"""A converted encoder in sentence-transformers. It needs the package sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import PreTrainedModel

from kernelformer.errors import KernelformerError
from kernelformer.hf.load import load

__all__ = ["KernelTransformer", "sentence_transformer"]


class KernelTransformer(Transformer):
    """sentence-transformers' module around a model, which here is read with its kernels."""

    def _load_model(
        self,
        model_name_or_path: str,
        transformer_task: str,
        config: Any,
        backend: str,
        is_peft_model: bool,
        **model_kwargs: Any,
    ) -> PreTrainedModel:
        if backend != "torch":
            raise KernelformerError(f'a converted encoder runs by backend="torch", got {backend!r}')
        return load(model_name_or_path, dtype=model_kwargs.get("dtype"), own_kernel=model_kwargs.get("own_kernel"))


def sentence_transformer(
    path: str | Path, *, max_length: int | None = None, own_kernel: str | None = None
) -> SentenceTransformer:
    """The converted encoder at ``path`` as a ``SentenceTransformer``: its tokens' mean is the embedding.

    What ``SentenceTransformer.save`` writes of it is read by this function again. ``SentenceTransformer(path)`` refuses
    to, since it imports no class of another package that a folder names.

    Args:
        path: a folder that ``kernelformer convert``, ``save_pretrained`` (with its tokenizer) or ``save`` wrote.
        max_length: tokens a text is cut to; None is as many as the model has positions.
        own_kernel: as ``kernelformer.load``.

    Raises:
        KernelformerError: as :func:`kernelformer.load`.
    """
    transformer = KernelTransformer(str(path), model_kwargs={"own_kernel": own_kernel})
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[transformer, pooling])
    if max_length is not None:
        model.max_seq_length = max_length
    return model
