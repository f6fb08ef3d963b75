"""The loss curve reaches TensorBoard, every entry, and only where it is asked for."""

from __future__ import annotations

import copy
import sys

import pytest

import kernelformer as kf
from kernelformer.learn.finetuning import finetune
from kernelformer.learn.trainer import Schedule


def train(teacher, batches, **options):
    student = kf.convert(copy.deepcopy(teacher), "elu", example=batches[0])
    return finetune(student, teacher, batches, Schedule(steps=4, precision="float32", **options))


def test_the_loss_curve_reaches_tensorboard(teacher, batches, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curve = train(teacher, batches, events=str(tmp_path / "events"))
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert [step for step, _ in written] == [1, 2, 3, 4]
    assert written == [(step, pytest.approx(loss)) for step, loss in curve]


def test_without_its_package_the_extra_is_named(teacher, batches, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(kf.KernelformerError, match=r"kernelformer\[tensorboard\]"):
        train(teacher, batches, events=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
