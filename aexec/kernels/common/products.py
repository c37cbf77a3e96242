"""Products of matrices in pieces that several threads share; the epilogue is applied to each piece.

The shapes alone decide the cuts.  BLAS copies the factor that is not cut once for every piece, so the larger one is
cut, and pieces are not small.  A piece of large matrices is multiplied in blocks, so that the end of a
session waits for no more than a block.  Read next: `epilogue.py`, `framework/waiting/intra_op.py`.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from aexec.framework.memory.allocator import WATCHED_CALLS, announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks

__all__ = ["batch_product", "matrix_product"]

# Products of fewer multiply-adds are not cut: waking another thread takes a tenth of the time of this many.
_LEAST = 8_000_000
# Multiply-adds of a piece, at least.
_PIECE = 4_000_000
# The least rows or columns of a piece, and the size of BLAS's tiles, of which they are a multiple.  At that length the
# copy of the other factor costs a tenth of the piece's time.
_LEAST_LENGTH, _TILE = 128, 16
# Multiply-adds of a block, at most, if its sides are not shorter than `_LEAST_LENGTH`: 5 ms of a core or so.
_BLOCK = 256_000_000


def _cuts(length: int, steps: int) -> list[slice]:
    """Slices that cut `length` rows or columns, of a product of `steps` multiply-adds, into pieces."""
    pieces = max(1, min(steps // _PIECE, length // _LEAST_LENGTH))
    tiles = -(-length // _TILE)
    bounds = [min(length, tiles * i // pieces * _TILE) for i in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _multiply(a: Any, b: Any, out: Any) -> None:
    """Write the product of two matrices to `out`, in blocks of the longer side if it takes many multiply-adds.

    Raises:
        AbandonedError: nobody waits for this call any more; some blocks are not written then.
    """
    (rows, common), columns = a.shape, b.shape[1]
    longer, shorter = max(rows, columns), min(rows, columns)
    length = max(_LEAST_LENGTH, _BLOCK // (common * shorter) // _TILE * _TILE)
    if length >= longer:
        np.matmul(a, b, out=out)
        return
    for start in range(0, longer, length):
        check_wanted()
        part = slice(start, start + length)
        if columns > rows:
            np.matmul(a, b[:, part], out=out[:, part])
        else:
            np.matmul(a[part], b, out=out[part])


def _announce_copies(*factors: Any) -> None:
    """Announce the copies that NumPy makes for BLAS of matrices that are neither row-major nor column-major.

    Broadcast matrices are among them.
    """
    announce_scratch(sum([prod(m.shape[-2:]) * m.itemsize for m in factors if not _is_for_blas(m)]))


def _is_for_blas(matrix: Any) -> bool:
    (rows, columns), (down, right) = matrix.shape[-2:], matrix.strides[-2:]
    size = matrix.itemsize
    return bool((right == size and down >= columns * size) or (down == size and right >= rows * size))


def matrix_product(xp: Any, a: Any, b: Any, epilogue: Epilogue | None = None, out: Any = None) -> Any:
    """The product of two matrices of one type; `epilogue` is applied to the result, in place.

    Args:
        out: the array for the result: contiguous, and not a part of a or b.

    Raises:
        ValueError: NumPy's, if the sizes do not match.
    """
    rows, columns = a.shape[0], b.shape[1]
    steps = rows * a.shape[1] * columns
    if WATCHED_CALLS[0] and xp is np:
        _announce_copies(a, b)
    if xp is not np or steps < _LEAST or a.shape[1] != b.shape[0]:
        out = xp.matmul(a, b, out=out)
        apply_in_blocks(out, epilogue)
        return out
    if out is None:
        out = np.empty((rows, columns), a.dtype)
    if columns > rows:
        cuts = _cuts(columns, steps)
        in_pieces(len(cuts), lambda i: _multiply(a, b[:, cuts[i]], out[:, cuts[i]]))
        apply_in_blocks(out, epilogue)
        return out
    cuts = _cuts(rows, steps)

    def piece(i: int) -> None:
        part = cuts[i]
        _multiply(a[part], b, out[part])
        apply_in_blocks(out[part], epilogue, part.start)

    in_pieces(len(cuts), piece)
    return out


def batch_product(a: Any, b: Any) -> Any:
    """NumPy's `matmul` of two arrays of one type and at least two dimensions, in pieces if it is large.

    Raises:
        ValueError: NumPy's, if the sizes do not match.
    """
    if a.shape[-1] == b.shape[-2] and not (a.size and b.size):
        # NumPy would loop over all matrices, whose number may be huge.
        return np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    if WATCHED_CALLS[0]:
        _announce_copies(a, b)
    if a.size * b.shape[-1] < _LEAST or a.shape[-1] != b.shape[-2]:
        # Outer products, such as the gradient of a weighted sum, have nothing to add up.
        return a * b if a.shape[-1] == b.shape[-2] == 1 else np.matmul(a, b)
    if b.size == b.shape[-1] * b.shape[-2] and a.ndim >= b.ndim and a.flags.c_contiguous:
        # One matrix is the second factor of all others: make it one product.
        flat = matrix_product(np, a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]))
        return flat.reshape(*a.shape[:-1], b.shape[-1])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    # Cut the first axis longer than 1.
    axis = next((i for i, length in enumerate(batch) if length > 1), None)
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    of_one = a.shape[-2] * a.shape[-1] * b.shape[-1]
    if axis is None or of_one > _BLOCK:
        left, right = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
        for at in np.ndindex(batch):
            matrix_product(np, left[at], right[at], out=out[at])
        return out
    steps = prod(batch) * of_one
    pieces = min(batch[axis], max(1, steps // _PIECE))
    if pieces == 1:
        return np.matmul(a, b, out=out)

    def part(x: Any, start: int, stop: int) -> Any:
        at = axis - len(batch) + x.ndim - 2
        if at < 0 or x.shape[at] == 1:
            return x
        return x[(slice(None),) * at + (slice(start, stop),)]

    def piece(i: int) -> None:
        start, stop = batch[axis] * i // pieces, batch[axis] * (i + 1) // pieces
        np.matmul(part(a, start, stop), part(b, start, stop), out=part(out, start, stop))

    in_pieces(pieces, piece)
    return out
