"""Sums over all dimensions but the last ones, where these are short: the gradient of a bias, above all.

NumPy adds row to row, and spends more on a short row than on its numbers.  So many rows are taken for a long one, and
what that comes to is added up.  The numbers are added in another order, to as many sums; it follows from the shapes.
Read next: `aexec/kernels/math/reduction_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["MANY", "sum_of_rows"]

# Below so many numbers a plain sum is as fast.
MANY = 1 << 15
# Numbers of a long row, about, and those of a row that is long enough by itself.
_LONG, _LONG_ENOUGH = 1024, 256


def sum_of_rows(matrix: Any, dtype: Any) -> Any:
    """The sum of the rows of a contiguous matrix, in `dtype`, a type of floats."""
    rows, columns = matrix.shape
    together = _LONG // max(1, columns)
    if matrix.size < MANY or columns > _LONG_ENOUGH or not matrix.flags.c_contiguous:
        return np.add.reduce(matrix, 0, dtype)
    whole = rows // together * together
    sums = np.add.reduce(matrix[:whole].reshape(-1, together * columns), 0, dtype)
    total = np.add.reduce(sums.reshape(together, columns), 0)
    if whole < rows:
        total += np.add.reduce(matrix[whole:], 0, dtype)
    return total
