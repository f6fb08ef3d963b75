"""Official files of pictures, read to grey pixels."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import kernelformer as kf
from kernelformer.tasks.pixels import read_cifar10, read_fashion


def test_cifar10(tmp_path):
    record = np.zeros((10, 3073), np.uint8)
    record[:, 0] = np.arange(10)
    record[:, 1:1025] = 100  # red
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (tmp_path / f"{name}.bin").write_bytes(record.tobytes())
    task = read_cifar10(tmp_path)
    assert [len(part.labels) for part in task[:3]] == [45, 5, 10]
    assert task.test.labels == list(range(10))
    assert task.test.inputs[3] == [31] * 1024  # 0.299 · 100, plus 1
    (tmp_path / "test_batch.bin").write_bytes(b"short")
    with pytest.raises(kf.DataError, match=r"test_batch.bin is no batch"):
        read_cifar10(tmp_path)


def test_fashion(tmp_path):
    for name, count in (("train", 5010), ("t10k", 3)):
        pixels = np.full((count, 784), 7, np.uint8)
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + pixels.tobytes(), 1))
        labels = (np.arange(count) % 10).astype(np.uint8)
        (tmp_path / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels.tobytes()))
    task = read_fashion(tmp_path)
    assert [len(part.labels) for part in task[:3]] == [10, 5000, 3]
    assert (task.test.labels, set(task.test.inputs[0])) == ([0, 1, 2], {8})
    with pytest.raises(kf.DataError, match="dataset-fashion-mnist"):
        read_fashion(tmp_path / "absent")
