"""Triton's classification extension: sends the highest values of an output, with their indices, instead of the
output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from aexec import errors
from aexec.hosting import DType, dtypes

__all__ = ["check_classes", "read_class_count", "top_classes"]


def read_class_count(value: Any) -> int:
    """Return the parameter `classification` of an output; 0 if it is not given.  Raises InvalidArgumentError if it is
    not valid.
    """
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise errors.InvalidArgumentError(f'"classification" must be a number of classes, got {str(value)[:40]!r}')
    return value


def check_classes(name: str, dtype: DType) -> None:
    """Raise InvalidArgumentError for a type whose values cannot be ranked."""
    if dtype is dtypes.string or dtype is dtypes.bool_ or dtype.is_complex:
        raise errors.InvalidArgumentError(f"class result not available for output '{name}' due to unsupported type")


def top_classes(array: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return texts such as `b"0.900000:7"` for the highest values, in descending order; equal values keep their order.

    For a vector or a scalar these are the highest of all elements, otherwise those of each row of the first axis.
    """
    rows = array.reshape(1, -1) if array.ndim < 2 else array.reshape(len(array), -1)
    most = min(count, rows.shape[1])
    # Sorted in reverse, so that a stable sort puts the first of equal values last.
    order = rows.shape[1] - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :most]
    values = np.take_along_axis(rows, order, axis=1)
    form = "{}:{}" if array.dtype.kind in "iu" else "{:f}:{}"
    best = np.empty((len(rows), most), object)
    for at, (value, place) in enumerate(zip(values.ravel().tolist(), order.ravel().tolist(), strict=True)):
        best.flat[at] = form.format(value, place).encode()
    return best.reshape(-1) if array.ndim < 2 else best
