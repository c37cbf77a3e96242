"""Sums over all dimensions but the last ones, if these are short, such as the gradient of a bias.

NumPy adds row to row, and spends more time on the overhead of a short row than on its numbers.  So several rows are
joined into one long row, and the parts of the sum of those are added at the end.  The order of additions differs from
NumPy's and depends on the shapes alone. Read next: `aexec/kernels/math/reduction_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["MANY", "sum_of_rows"]

# Below this many numbers a plain sum is as fast.
MANY = 1 << 15
# The approximate length of a joined row, and the length from which a row is not joined.
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
