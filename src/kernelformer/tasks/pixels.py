"""Pictures as rows of grey pixels, read from the official files of data sets."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelformer.errors import DataError
from kernelformer.tasks.sequences import Sequences, SequenceTask

__all__ = ["FASHION", "read_cifar10", "read_fashion"]

FASHION: Final = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts it."""

_RECORD: Final = 3073
_GREY: Final = np.array([0.299, 0.587, 0.114])


def read_cifar10(folder: str | Path) -> SequenceTask:
    """CIFAR-10 in its binary version (data_batch_1.bin … data_batch_5.bin, test_batch.bin), grey, 1,024 tokens.

    45,000 pictures train, the last 5,000 validate, as in the Long Range Arena.

    Raises:
        DataError: a file is missing or of another size.
    """
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    batches = [_records(Path(folder) / name) for name in names]
    known, test = np.concatenate(batches[:5]), batches[5]
    cut = len(known) * 9 // 10
    return SequenceTask.of(
        (_coloured(part) for part in (known[:cut], known[cut:], test)), vocabulary=257, classes=10, max_length=1024
    )


def read_fashion(folder: str | Path = FASHION) -> SequenceTask:
    """Stand-in for CIFAR-10: Fashion-MNIST, 784 tokens; the last 5,000 training pictures validate.

    Args:
        folder: holds train-images-idx3-ubyte.gz and its three fellows.

    Raises:
        DataError: a file is missing or has another form.
    """
    parts = []
    for name in ("train", "t10k"):
        pixels = _idx(Path(folder) / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        labels = _idx(Path(folder) / f"{name}-labels-idx1-ubyte.gz", 8)
        parts.append((pixels, labels))
    (pixels, labels), test = parts
    cut = len(labels) - 5000
    return SequenceTask.of(
        (_grey(*part) for part in ((pixels[:cut], labels[:cut]), (pixels[cut:], labels[cut:]), test)),
        vocabulary=257,
        classes=10,
        max_length=784,
    )


def _idx(path: Path, header: int) -> NDArray[np.uint8]:
    try:
        return np.frombuffer(gzip.decompress(path.read_bytes())[header:], np.uint8)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error}): install Debian's dataset-fashion-mnist, or name the folder of its files"
        ) from error


def _records(path: Path) -> NDArray[np.uint8]:
    if not path.is_file() or path.stat().st_size % _RECORD:
        raise DataError(f"{path} is no batch of CIFAR-10's binary version (records of {_RECORD} bytes)")
    return np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, _RECORD)


def _coloured(records: NDArray[np.uint8]) -> Sequences:
    grey = np.rint(np.einsum("ncp,c->np", records[:, 1:].reshape(-1, 3, 1024).astype(float), _GREY))
    return _grey(grey.astype(np.uint8), records[:, 0])


def _grey(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Sequences:
    return Sequences((pixels.astype(int) + 1).tolist(), labels.astype(int).tolist())
