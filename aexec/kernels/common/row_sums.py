"""Sums over all dimensions but the last ones, or some before these, if the last are short: the gradient of a bias, or
the means of an image's channels.

NumPy adds row to row, and spends more time on the overhead of a short row than on its numbers.  So BLAS multiplies
blocks of rows by ones, and the sums of blocks are added at the end; that is more exact, as fewer numbers are added to a
large sum.  Types that BLAS does not have are added by NumPy with several rows joined into one long row.  The order of
additions differs from NumPy's and depends on the shapes alone. Read next: `aexec/kernels/math/reduction_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["MANY", "sum_of_rows"]

# Below this many numbers a plain sum is as fast.
MANY = 1 << 13
# The approximate length of a joined row, and the length from which a row is not joined.
_LONG, _LONG_ENOUGH = 1024, 256
# The rows of a block, and the longest that BLAS adds faster than NumPy.
_BLOCK, _SHORT = 256, 128
_ONES = {dtype: np.ones(_BLOCK, dtype) for dtype in (np.dtype(np.float32), np.dtype(np.float64))}


def sum_of_rows(matrices: Any, dtype: Any) -> Any:
    """The sums of the rows of contiguous matrices [..., rows, columns], in `dtype`, a type of floats."""
    rows, columns = matrices.shape[-2:]
    if matrices.size < MANY or rows < 2 or columns > _LONG_ENOUGH or not matrices.flags.c_contiguous:
        return np.add.reduce(matrices, -2, dtype)
    ones = _ONES.get(matrices.dtype) if matrices.dtype == dtype and columns <= _SHORT else None
    together = _LONG // max(1, columns) if ones is None else _BLOCK
    whole = rows // together * together
    shape = (*matrices.shape[:-2], whole // together, together)
    blocks = matrices[..., :whole, :]
    if ones is None:
        sums = np.add.reduce(blocks.reshape(*shape[:-1], together * columns), -2, dtype)
        total = np.add.reduce(sums.reshape(*shape[:-2], together, columns), -2)
    else:
        total = np.add.reduce(np.matmul(ones, blocks.reshape(*shape, columns)), -2)
    if whole < rows:
        rest = matrices[..., whole:, :]
        total += np.add.reduce(rest, -2, dtype) if ones is None else np.matmul(ones[: rows - whole], rest)
    return total
