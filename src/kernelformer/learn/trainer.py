"""The one training loop: transformers' Trainer over batches that are ready, with a loss of ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, SequentialSampler
from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from kernelformer.learn.curves import EVENTS
from kernelformer.learn.statistics import Batch

__all__ = ["KERNEL_SHARE", "PRECISIONS", "Batch", "Schedule", "Selection", "fit", "wants_bfloat16"]

PRECISIONS = ("auto", "float32", "bfloat16")

KERNEL_SHARE: Final = 0.1
"""The rate of kernels while a whole model trains, as a share of that while they are distilled alone."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        steps: optimiser steps, one batch each.
        learning_rate: the peak rate of weights; it rises over ``warmup`` · steps, then falls linearly to zero.
        kernel_learning_rate: the peak rate of kernel parameters.
        warmup: the share of steps in which rates rise.
        betas: of AdamW.
        precision: "float32", "bfloat16" (autocast; kernels stay float32), or "auto": bfloat16 where the machine has
            instructions for it.
        max_grad_norm: gradients are clipped to it; 0 leaves them.
        save_steps: a checkpoint every so many steps, from which an interrupted run goes on.
        seed: of what a model draws while it trains, as dropout.
    """

    steps: int
    learning_rate: float = 3e-4
    kernel_learning_rate: float = 1e-2
    warmup: float = 0.05
    betas: tuple[float, float] = (0.9, 0.99)
    precision: str = "auto"
    max_grad_norm: float = 0.0
    save_steps: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Selection:
    """Which weights of a training are kept: those that score highest.

    Attributes:
        score: of the model, in eval mode, without gradients; higher is better, for example validation accuracy.
        every: steps between two looks; checkpoints are written then, whatever ``Schedule.save_steps``.
    """

    score: Callable[[nn.Module], float]
    every: int


_SCORE = "eval_score"


def fit(
    model: nn.Module,
    batches: Sequence[Batch],
    loss: Callable[[nn.Module, Batch], Tensor],
    schedule: Schedule,
    parameters: Sequence[dict[str, Any]],
    folder: Path,
    label: str,
    *,
    selection: Selection | None = None,
    dropout: bool = False,
) -> list[tuple[int, float]]:
    """Train ``parameters`` (optimiser groups) of ``model``, going on from a checkpoint in ``folder`` if there is one.

    Batches are taken in their order, again from the start where there are fewer than steps. With ``selection`` the
    model ends at the weights that scored best. ``dropout`` is left out unless asked for.

    Returns:
        (step, mean loss since the entry before), about 50 of them.
    """
    optimizer = torch.optim.AdamW(
        list(parameters), lr=schedule.learning_rate, betas=schedule.betas, weight_decay=0.0, fused=True
    )
    trainer = _LossTrainer(
        model=model,
        args=_arguments(schedule, folder, selection),
        train_dataset=_Batches(batches),
        # Never looked at: ``evaluate`` below calls the score. Trainer wants one all the same.
        eval_dataset=None if selection is None else _Batches(batches),
        data_collator=_only_item,
        optimizers=(optimizer, None),
    )
    trainer.loss_function = loss
    trainer.selection = selection
    trainer.dropout = dropout
    trainer.bfloat16 = wants_bfloat16(schedule.precision)
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    if sys.stderr.isatty():
        trainer.add_callback(_Bar(label))
    if (events := EVENTS.get()) is not None:
        trainer.add_callback(_tensorboard(events / label))
    trainer.train(resume_from_checkpoint=_last_whole_checkpoint(folder))
    return [(int(entry["step"]), entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def wants_bfloat16(precision: str) -> bool:
    """Whether to train under bfloat16 autocast: asked for, or "auto" on a machine with instructions for it."""
    if precision != "auto":
        return precision == "bfloat16"
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _last_whole_checkpoint(folder: Path) -> str | None:
    """The latest one that was written to its end; later ones go. Trainer writes a checkpoint's state after all else."""
    while folder.is_dir() and (found := get_last_checkpoint(str(folder))):
        try:
            json.loads((Path(found) / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
            return str(found)
        except (OSError, ValueError):
            shutil.rmtree(found)
    return None


class _Batches(Dataset[Batch]):
    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        return self.batches[index]


class _LossTrainer(Trainer):
    """A Trainer whose loss is ``loss_function``, and whose evaluation is the score of a selection."""

    loss_function: Callable[[nn.Module, Batch], Tensor]
    selection: Selection | None
    dropout: bool
    bfloat16: bool

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        model.train(self.dropout)
        # Not left to accelerate: it wraps model.forward for good, and a second training of the same model not at all.
        device = next(model.parameters()).device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self.bfloat16):
            return self.loss_function(model, inputs)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        assert self.selection is not None and self.model is not None
        self.model.eval()
        with torch.no_grad():
            metrics = {_SCORE: self.selection.score(self.model)}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]


class _Bar(ProgressCallback):
    """A progress bar that shows the loss, instead of a line for every entry of the log."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # tqdm itself: transformers' own is silent wherever its progress bars are turned off.
        bar: Any = tqdm(total=state.max_steps, desc=self.label, dynamic_ncols=True, leave=False)
        self.training_bar = bar
        self.current_step = 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "loss" in logs:
            self.training_bar.set_postfix(loss=f"{float(logs['loss']):.4f}")


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(str(folder)))


def _arguments(schedule: Schedule, folder: Path, selection: Selection | None) -> TrainingArguments:
    every = None if selection is None else min(selection.every, schedule.steps)
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=schedule.steps,
        per_device_train_batch_size=1,
        warmup_steps=round(schedule.warmup * schedule.steps),
        lr_scheduler_type="linear",
        max_grad_norm=schedule.max_grad_norm,
        logging_steps=max(1, schedule.steps // 50),
        save_steps=schedule.save_steps if every is None else every,
        eval_strategy="no" if every is None else "steps",
        eval_steps=every,
        load_best_model_at_end=every is not None,
        metric_for_best_model=None if every is None else _SCORE,
        greater_is_better=None if every is None else True,
        save_total_limit=1,
        seed=schedule.seed,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )


def _only_item(items: list[Batch]) -> dict[str, Tensor]:
    return dict(items[0])
