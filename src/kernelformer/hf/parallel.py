"""A converted model whose sequences are held in slices by many processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from kernelformer.errors import KernelformerError, UnsupportedModelError
from kernelformer.hf.sites import kernels

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["split_sequence"]


def split_sequence(model: PreTrainedModel, group: ProcessGroup | None) -> PreTrainedModel:
    """From now on, this process gives ``model`` its slice of sequences that all processes of ``group`` hold.

    Every process makes the same calls, with slices in the order of the ranks, of any lengths, 0 and padding alone
    included. It gives ``position_ids`` that count from the start of the whole sequence, ``attention_mask`` of its own
    slice, and ``use_cache=False`` to decoders. Gradients are those of the sum of all processes' losses with respect
    to the weights' use in this one: what is left to do is to add them up.

    Args:
        group: of torch.distributed; None makes sequences whole again.

    Returns:
        The same model.

    Raises:
        UnsupportedModelError: a layer of the model is still softmax.
        KernelformerError: not converted; or its kernels have a gate or a window.
    """
    record = getattr(model.config, "kernelized", None)
    if not record:
        raise KernelformerError("this model has no kernel attention: kernelformer.convert it first")
    left = [layer["module"] for layer in record["layers"] if not layer["converted"]]
    if left and group is not None:
        raise UnsupportedModelError(
            f"{left[0]} and {len(left) - 1} more are softmax, which needs the keys of all processes: convert all layers"
        )
    for kernel in kernels(model).values():
        kernel.split_over(group)
    return model
