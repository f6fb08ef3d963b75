"""Rows with labels, as scikit-learn hands them to an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from kernelformer.errors import DataError

__all__ = ["labelled_rows"]


def labelled_rows(estimator: Any, rows: Any, labels: Any) -> tuple[Any, Any, Any]:
    """The rows in float64, the classes in order, and each row's number among them.

    Raises:
        DataError: one class only.
        ValueError: whatever else scikit-learn refuses.
    """
    rows, labels = validate_data(estimator, rows, labels, dtype=np.float64, ensure_min_samples=2)
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"{type(estimator).__name__} needs labels of at least two classes, got one class")
    return rows, classes, numbers
