"""Loss curves reach TensorBoard, every entry, and only where it is asked for."""

from __future__ import annotations

import copy
import sys

import pytest

import kernelformer as kf
from kernelformer.learn import Schedule, tensorboard
from kernelformer.learn.finetuning import finetune


def train(teacher, batches):
    student = kf.convert(copy.deepcopy(teacher), "elu", example=batches[0])
    return finetune(student, teacher, batches, Schedule(steps=4, precision="float32"))


def test_the_loss_curve_reaches_tensorboard(teacher, batches, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with tensorboard(tmp_path / "outer"):
        with tensorboard(tmp_path / "events"):
            curve = train(teacher, batches)
        with tensorboard(None):
            train(teacher, batches)
    assert not (tmp_path / "outer").exists()
    events = accumulator.EventAccumulator(str(tmp_path / "events/train the student"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert [step for step, _ in written] == [1, 2, 3, 4]
    assert written == [(step, pytest.approx(loss)) for step, loss in curve]


def test_without_its_package_the_extra_is_named(teacher, batches, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(kf.KernelformerError, match=r"kernelformer\[tensorboard\]"), tensorboard(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
