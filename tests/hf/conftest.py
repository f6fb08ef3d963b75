"""Tiny random models of every family, and the inputs they are tried on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers")

from families import tiny_config  # noqa: E402


@pytest.fixture
def build() -> Callable[[str], transformers.PreTrainedModel]:
    """A function from the name of a family to a tiny model of it."""
    return _build


def _build(family: str) -> transformers.PreTrainedModel:
    """A model of this family with random weights, the same at every call."""
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(tiny_config(family, positions=40)).eval()


@pytest.fixture
def inputs() -> dict[str, Tensor]:
    """Two rows of 12 tokens; the second has four of padding at its end."""
    ids = torch.randint(5, 99, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}
