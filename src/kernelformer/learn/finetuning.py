"""Train a converted model, as a whole, to give the hidden states of its softmax teacher."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernelformer.attention import kernels_of
from kernelformer.errors import KernelformerError
from kernelformer.learn.freezing import checkpoints, only_trainable
from kernelformer.learn.trainer import Batch, Schedule, fit

__all__ = ["FINETUNE_MODES", "TeacherLoss", "finetune", "hidden_state_loss", "logit_loss"]

FINETUNE_MODES = ("none", "kernels", "qkv", "all")
"""What is trained: nothing, kernel parameters, those and the q, k, v projections, everything but embeddings."""

TeacherLoss = Callable[[nn.Module, nn.Module, Batch], Tensor]
"""(teacher, student, batch) -> what is minimised."""

_QKV = re.compile(r"(^|\.)(q|k|v|query|key|value|q_proj|k_proj|v_proj|q_lin|k_lin|v_lin|qkv|c_attn|query_key_value)\.")


def finetune(
    student: nn.Module,
    teacher: nn.Module,
    batches: Sequence[Mapping[str, Tensor]],
    schedule: Schedule | None = None,
    *,
    mode: str = "all",
    objective: TeacherLoss | None = None,
    folder: str | Path | None = None,
) -> list[tuple[int, float]]:
    """Train ``student`` to be like its teacher, by default in its hidden states.

    Args:
        student: the converted model, changed in place.
        teacher: the model it was made from, unchanged; it follows the student to the device that the Trainer finds.
        batches: inputs of both, padded, with "attention_mask"; used in order, over and over.
        schedule: how long and how fast; None is 1,000 steps.
        mode: one of ``FINETUNE_MODES``.
        objective: ``hidden_state_loss`` (encoders) or ``logit_loss`` (decoders), or one's own.
        folder: where checkpoints go, from which an interrupted call goes on; None keeps none.

    Returns:
        The loss curve, (step, loss).

    Raises:
        KernelformerError: no such mode, no batch, or nothing to train in that mode.
    """
    if mode not in FINETUNE_MODES:
        raise KernelformerError(f"finetune is one of {', '.join(FINETUNE_MODES)}, got {mode!r}")
    if mode == "none":
        return []
    if not len(batches):
        raise KernelformerError("finetune needs at least one batch")
    schedule = Schedule(steps=1000) if schedule is None else schedule
    groups = _groups(student, mode, schedule)
    teacher.eval()

    compare = hidden_state_loss if objective is None else objective

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        # The Trainer chose the device, and moved the student and the batch there.
        return compare(teacher.to(next(model.parameters()).device), model, batch)

    trained = [parameter for group in groups for parameter in group["params"]]
    with only_trainable(student, trained), checkpoints(folder) as kept:
        return fit(student, batches, loss, schedule, groups, kept, "train the student")


def hidden_state_loss(teacher: nn.Module, student: nn.Module, batch: Batch) -> Tensor:
    """Σ over layers of ‖h_s - h_t‖² / ‖h_t‖² on real tokens, plus the mean over texts of 1 - cos(p_s, p_t).

    p is the mean over tokens of the last hidden state.
    """
    with torch.no_grad():
        target = teacher(**batch, output_hidden_states=True)
    found = student(**batch, output_hidden_states=True)
    mask = batch.get("attention_mask")
    if mask is None:
        mask = target.hidden_states[0].new_ones(target.hidden_states[0].shape[:2])
    # The embeddings come first; they are the same in both, or nearly.
    pairs = list(zip(found.hidden_states[1:], target.hidden_states[1:], strict=True))
    layers = torch.stack([_relative_error(h, t, mask[..., None]) for h, t in pairs]).sum()
    pooled, wanted = (_mean_pool(hidden, mask) for hidden in pairs[-1])
    return layers + (1.0 - torch.cosine_similarity(pooled, wanted, dim=-1)).mean()


def logit_loss(teacher: nn.Module, student: nn.Module, batch: Batch) -> Tensor:
    """KL(teacher ‖ student) of the next token's distribution, mean over real tokens: for language-model heads."""
    with torch.no_grad():
        wanted = teacher(**batch, use_cache=False).logits.float().log_softmax(-1)
    found = student(**batch, use_cache=False).logits.float().log_softmax(-1)
    divergence = torch.nn.functional.kl_div(found, wanted, reduction="none", log_target=True).sum(-1)
    mask = batch.get("attention_mask")
    if mask is None:
        return divergence.mean()
    return (divergence * mask).sum() / mask.sum()


def _groups(student: nn.Module, mode: str, schedule: Schedule) -> list[dict[str, Any]]:
    of_kernels = {id(p): p for kernel in kernels_of(student).values() for p in kernel.parameters()}
    embeddings = {
        id(p) for module in student.modules() if isinstance(module, nn.Embedding) for p in module.parameters()
    }
    others = [
        parameter
        for name, parameter in student.named_parameters()
        if id(parameter) not in of_kernels
        and id(parameter) not in embeddings
        and (mode == "all" or (mode == "qkv" and _QKV.search(name)))
    ]
    groups = [
        {"params": list(of_kernels.values()), "lr": schedule.kernel_learning_rate},
        {"params": others, "lr": schedule.learning_rate},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise KernelformerError(f"finetune={mode!r} leaves nothing to train: the kernels have no parameters")
    return groups


def _relative_error(found: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
    found, wanted = found.float(), wanted.float()
    return ((found - wanted).square() * weight).sum() / (wanted.square() * weight).sum()


def _mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    return (hidden.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
