"""Text to model from scratch: its own vocabulary, and batches whose labels are their inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from kernelformer.errors import KernelformerError
from kernelformer.tasks.batches import SteppedBatches, TokenisedTexts

__all__ = ["LanguageBatches", "train_vocabulary"]


def train_vocabulary(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of ``size`` tokens, which no text is foreign to.

    References:
        Sennrich, Haddow and Birch 2016, arXiv 1508.07909.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


class LanguageBatches(SteppedBatches):
    """{"input_ids", "labels"} int64 [B, N], one a step, drawn without replacement epoch after epoch, seeded.

    Args:
        blocks: shorter ones are left out, so that nothing is padded.
    """

    def __init__(self, blocks: TokenisedTexts, batch_size: int, *, steps: int, seed: int) -> None:
        full = [row["input_ids"] for row in blocks.examples if len(row["input_ids"]) == blocks.max_length]
        if len(full) < batch_size:
            raise KernelformerError(
                f"a batch needs {batch_size} blocks of {blocks.max_length} tokens, the text has {len(full)}"
            )
        self.blocks = torch.tensor(full)
        generator = torch.Generator(device="cpu").manual_seed(seed)
        an_epoch = len(full) // batch_size
        epochs = [
            torch.randperm(len(full), generator=generator)[: an_epoch * batch_size].view(an_epoch, batch_size)
            for _ in range(-(-steps // an_epoch))
        ]
        self.rows = torch.cat(epochs)[:steps]

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, step: int) -> dict[str, Tensor]:
        ids = self.blocks[self.rows[step]]
        return {"input_ids": ids, "labels": ids}
