"""Diagonals: Diag, DiagPart, and the MatrixDiag* family in its three versions, MatrixBandPart.

A band of diagonals, k[0] (lowest) to k[1], is stored with one row for each diagonal, the highest first, and as many
columns as the longest has elements.  A shorter one is padded on the left or on the right; `align` says on which side,
for the diagonals above the main one and below it.  All kernels here use one map: the position in the matrix of each
entry of the stored band (`_Band`).
Next to read: `linalg_ops.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import chooser

__all__: list[str] = []

DIAG_TYPES = (
    dtypes.float16,
    dtypes.float32,
    dtypes.float64,
    dtypes.int32,
    dtypes.int64,
    dtypes.complex64,
    dtypes.complex128,
)
MATRIX_TYPES = dtypes.POD

# The alignment of versions without an `align` attr.
_ALIGN_BEFORE_V3 = "LEFT_LEFT"


# Bytes per element of a band for its position, in a batch of any number of matrices.
_ENTRY_BYTES = 64


def _diag_ns(diagonal: Any, *_: Any) -> float:
    """Nanoseconds to write a square matrix (or a tensor of twice the rank) from its diagonal."""
    elements: int = diagonal.size * (diagonal.shape[-1] if diagonal.ndim else 1)
    return 2000.0 + 0.3 * elements


def _band_ns(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, *_: Any) -> float:
    """Nanoseconds to write matrices from bands, with the size that the band and the inputs give."""
    length = diagonal.shape[-1] if diagonal.ndim else 1
    side = length + max(map(abs, k.ravel()[:2].tolist()), default=0)
    rows, columns = (max(side, *n.ravel()[:1].tolist()) for n in (num_rows, num_cols))
    return float(2000.0 + 0.5 * diagonal.size / max(1, length) * rows * columns)


def _matrix_ns(matrix: Any, *_: Any) -> float:
    elements: int = matrix.size
    return 3000.0 + 0.5 * elements


def _diag_part_ns(matrix: Any, *_: Any) -> float:
    rows: float = matrix.size / max(matrix.shape[-1:] or (1,))
    return 3000.0 + 2.0 * rows


def _band_part_ns(matrix: Any, k: Any, *_: Any) -> float:
    """Nanoseconds to read several diagonals of matrices."""
    ends = k.ravel()[:2].tolist()
    diagonals = max(1, min(sum(matrix.shape[-2:]), 1 + max(ends) - min(ends)))
    return float(3000.0 + diagonals * (_diag_part_ns(matrix) - 3000.0))


# Diag and DiagPart: a tensor of any rank on the diagonal of one of twice the rank


@kernel("Diag", T=DIAG_TYPES, cost=lambda x: 2000.0 + 0.3 * x.size * x.size)
def diag(c: OpKernelConstruction) -> Compute:
    """Return zeros of shape s + s with the input (of shape s) on the diagonal."""
    xp, allocate = c.xp, allocator(c)

    def compute(x: Any) -> Any:
        if x.ndim < 1:
            raise errors.InvalidArgumentError(f"Input must be at least rank 1, got {x.ndim}")
        out = allocate(x.shape + x.shape, xp.zeros)
        out.reshape(-1)[:: x.size + 1] = x.reshape(-1)
        return out

    return compute


@kernel("DiagPart", T=DIAG_TYPES, cost=lambda x: 2000.0 + 4.0 * x.size**0.5)
def diag_part(c: OpKernelConstruction) -> Compute:
    """Return the diagonal, of shape s, of an input of shape s + s.  A scalar is its own diagonal."""

    def compute(x: Any) -> Any:
        if x.ndim % 2:
            raise errors.InvalidArgumentError(
                f"The rank of the tensor should be even and positive, got shape {shape_text(x.shape)}"
            )
        half = x.ndim // 2
        shape = x.shape[:half]
        for i in range(half):
            if x.shape[i] != x.shape[i + half]:
                raise errors.InvalidArgumentError(
                    f"Invalid shape {shape_text(x.shape)}: dimensions {i} and {i + half} do not match."
                )
        if not half:
            return x
        size = math.prod(shape)
        return x.reshape(size, size).diagonal().reshape(shape)

    return compute


# Bands


class _Band(NamedTuple):
    """Diagonals `lower` to `upper` of matrices with `rows` x `columns`, as they are stored.

    `entries` lists (diagonal, position, row, column) for each stored entry that lies in the matrix.
    """

    diagonals: int
    length: int
    entries: tuple[Any, Any, Any, Any]


def _band(lower: int, upper: int, rows: int, columns: int, align: str) -> _Band:
    pad_left_above, pad_left_below = (side == "RIGHT" for side in align.split("_"))
    length = min(rows + min(upper, 0), columns - max(lower, 0))
    diagonals = np.arange(upper, lower - 1, -1)
    lengths = np.minimum(rows + np.minimum(diagonals, 0), columns - np.maximum(diagonals, 0))
    shift = np.where(np.where(diagonals >= 0, pad_left_above, pad_left_below), length - lengths, 0)
    # Position p of diagonal d holds its element p - shift, at (element - min(d, 0), element + max(d, 0)) in the matrix.
    element = np.arange(length) - shift[:, None]
    which, place = np.nonzero((element >= 0) & (element < lengths[:, None]))
    element, d = element[which, place], diagonals[which]
    return _Band(len(diagonals), length, (which, place, element - np.minimum(d, 0), element + np.maximum(d, 0)))


class _Bands:
    """The bands of one node.  Keeps the last one, since k and the shapes are mostly the same in each step."""

    __slots__ = ("_last", "align", "xp")

    def __init__(self, xp: Any, align: str) -> None:
        self.xp = xp
        self.align = align
        # One tuple, replaced at once: calls of one node may run in several threads.
        self._last: tuple[tuple[int, int, int, int], _Band] | None = None

    def get(self, lower: int, upper: int, rows: int, columns: int) -> _Band:
        key = (lower, upper, rows, columns)
        last = self._last
        if last is None or last[0] != key:
            announce_scratch(_ENTRY_BYTES * (upper - lower + 1) * min(rows, columns))
            band = _band(*key, self.align)
            which, place, row, column = map(self.xp.asarray, band.entries)
            last = self._last = (key, band._replace(entries=(which, place, row, column)))
        return last[1]


def _align(c: OpKernelConstruction) -> str:
    """Alignment of the superdiagonals and of the subdiagonals: LEFT_RIGHT, ..."""
    if not c.op.endswith("V3"):
        return _ALIGN_BEFORE_V3
    align = c.text("align")
    if align not in ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"):
        raise errors.InvalidArgumentError(f"align must be one of LEFT_RIGHT, RIGHT_LEFT, LEFT_LEFT, got {align}")
    return align


def _diagonal_range(k: Any) -> tuple[int, int]:
    """Return (lowest, highest) of a `k` input, which is one number or two."""
    if k.ndim > 1:
        raise errors.InvalidArgumentError(
            f"diag_index must be a scalar or vector, received shape: {shape_text(k.shape)}"
        )
    if k.size == 0:
        raise errors.InvalidArgumentError("Expected diag_index to have at least 1 element")
    if k.size > 2:
        raise errors.InvalidArgumentError(f"diag_index must have only one or two elements, received {k.size} elements.")
    values = np.asarray(k).ravel()
    lower, upper = int(values[0]), int(values[-1])
    if lower > upper:
        raise errors.InvalidArgumentError(
            f"lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}"
        )
    return lower, upper


def _check_in_matrix(lower: int, upper: int, rows: int, columns: int) -> None:
    for name, k in (("lower", lower), ("upper", upper)):
        # The main diagonal exists even if the matrix has no elements.
        if not (-rows < k < columns or k == 0):
            raise errors.InvalidArgumentError(
                f"{name}_diag_index is out of bound: {k}. It must be between {-rows} and {columns}"
            )


def _check_matrix(x: Any) -> None:
    if x.ndim < 2:
        raise errors.InvalidArgumentError(f"input must be at least 2-dim, received shape: {shape_text(x.shape)}")


def _check_diagonal(x: Any) -> None:
    if x.ndim < 1:
        raise errors.InvalidArgumentError(f"diagonal must be at least 1-dim, received shape: {shape_text(x.shape)}")


# MatrixDiag*: diagonals → matrix


@kernel("MatrixDiag", "BatchMatrixDiag", T=MATRIX_TYPES, cost=_diag_ns)
def matrix_diag(c: OpKernelConstruction) -> Compute:
    """Square matrices with the last axis of the input on their main diagonals."""
    xp, allocate = c.xp, allocator(c)

    def compute(diagonal: Any) -> Any:
        _check_diagonal(diagonal)
        n = diagonal.shape[-1]
        matrix = allocate((*diagonal.shape, n), xp.zeros)
        if not diagonal.size:  # the index may be long even then
            return matrix
        index = xp.arange(n)
        matrix[..., index, index] = diagonal
        return matrix

    return compute


@kernel("MatrixDiagV2", "MatrixDiagV3", T=MATRIX_TYPES, cost=_band_ns)
def matrix_diag_v2(c: OpKernelConstruction) -> Compute:
    """Return matrices with a band of diagonals and padding elsewhere; sizes of -1 are as small as the band allows."""
    xp, bands = c.xp, _Bands(c.xp, _align(c))

    def compute(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any) -> Any:
        _check_diagonal(diagonal)
        lower, upper = _diagonal_range(k)
        for name, value in (("num_rows", num_rows), ("num_cols", num_cols), ("padding_value", padding)):
            if value.ndim:
                raise errors.InvalidArgumentError(f"{name} must be a scalar")
        single = lower == upper
        if not single and (diagonal.ndim < 2 or diagonal.shape[-2] != upper - lower + 1):
            raise errors.InvalidArgumentError(
                "The number of diagonals provided in the input does not match the lower_diag_index and "
                "upper_diag_index range."
            )
        rows, columns = _matrix_size(diagonal.shape[-1], lower, upper, int(num_rows), int(num_cols))
        batch = diagonal.shape[:-1] if single else diagonal.shape[:-2]
        matrix = xp.full((*batch, rows, columns), padding if xp is np else padding[()], diagonal.dtype)
        if not diagonal.size:  # the bands may be long even then
            return matrix
        which, place, row, column = bands.get(lower, upper, rows, columns).entries
        matrix[..., row, column] = diagonal[..., place] if single else diagonal[..., which, place]
        return matrix

    return compute


def _matrix_size(length: int, lower: int, upper: int, rows: int, columns: int) -> tuple[int, int]:
    """Size of a matrix whose longest diagonal of the band has `length` elements; -1 is derived."""
    least_rows = length - min(upper, 0)
    least_columns = length + max(lower, 0)
    if rows != -1 and rows < least_rows:
        raise errors.InvalidArgumentError("The number of rows is too small.")
    if columns != -1 and columns < least_columns:
        raise errors.InvalidArgumentError("The number of columns is too small.")
    if rows == columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    if rows != least_rows and columns != least_columns:
        raise errors.InvalidArgumentError(
            "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal."
        )
    return rows, columns


# MatrixDiagPart*: matrix → diagonals


@kernel("MatrixDiagPart", "BatchMatrixDiagPart", T=MATRIX_TYPES, cost=_diag_part_ns)
def matrix_diag_part(c: OpKernelConstruction) -> Compute:
    """Main diagonals of the matrices in the last two axes."""

    def compute(x: Any) -> Any:
        _check_matrix(x)
        return x.diagonal(axis1=-2, axis2=-1)

    return compute


@kernel("MatrixDiagPartV2", "MatrixDiagPartV3", T=MATRIX_TYPES, cost=_band_part_ns)
def matrix_diag_part_v2(c: OpKernelConstruction) -> Compute:
    """Return a band of diagonals, padded to the length of the longest; without the diagonals' axis if k is one
    number.
    """
    xp, bands = c.xp, _Bands(c.xp, _align(c))

    def compute(x: Any, k: Any, padding: Any) -> Any:
        _check_matrix(x)
        lower, upper = _diagonal_range(k)
        rows, columns = x.shape[-2:]
        _check_in_matrix(lower, upper, rows, columns)
        if lower == upper:
            return x.diagonal(lower, -2, -1)
        band = bands.get(lower, upper, rows, columns)
        which, place, row, column = band.entries
        value = np.asarray(padding).ravel()[0] if padding.size else 0
        stored = xp.full((*x.shape[:-2], band.diagonals, band.length), value, x.dtype)
        stored[..., which, place] = x[..., row, column]
        return stored

    return compute


# MatrixSetDiag*: matrix with its diagonals replaced


def _set_diag_error() -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to "
        "the longests diagonal in range [lower_diag_index:upper_diag_index]."
    )


@kernel("MatrixSetDiag", "BatchMatrixSetDiag", T=MATRIX_TYPES, cost=_matrix_ns)
def matrix_set_diag(c: OpKernelConstruction) -> Compute:
    """Return the input with other main diagonals."""
    xp = c.xp

    def compute(x: Any, diagonal: Any) -> Any:
        _check_matrix(x)
        _check_diagonal(diagonal)
        n = min(x.shape[-2:])
        if diagonal.shape != (*x.shape[:-2], n):
            raise _set_diag_error()
        result = x.copy()
        index = xp.arange(n)
        result[..., index, index] = diagonal
        return result

    return compute


@kernel("MatrixSetDiagV2", "MatrixSetDiagV3", T=MATRIX_TYPES, cost=_matrix_ns)
def matrix_set_diag_v2(c: OpKernelConstruction) -> Compute:
    """Return the input with another band of diagonals."""
    bands = _Bands(c.xp, _align(c))

    def compute(x: Any, diagonal: Any, k: Any) -> Any:
        _check_matrix(x)
        _check_diagonal(diagonal)
        lower, upper = _diagonal_range(k)
        rows, columns = x.shape[-2:]
        _check_in_matrix(lower, upper, rows, columns)
        band = bands.get(lower, upper, rows, columns)
        single = lower == upper
        if not single and (diagonal.ndim != x.ndim or diagonal.shape[-2] != band.diagonals):
            raise errors.InvalidArgumentError(
                "The number of diagonals provided in `diag` is not consistent with `lower_diag_index` and "
                "`upper_diag_index`"
            )
        if diagonal.shape != (*x.shape[:-2], *([] if single else [band.diagonals]), band.length):
            raise _set_diag_error()
        which, place, row, column = band.entries
        result = x.copy()
        result[..., row, column] = diagonal[..., place] if single else diagonal[..., which, place]
        return result

    return compute


# MatrixBandPart


def _half_width(name: str, value: Any, limit: int, of: str) -> int:
    """Diagonals to keep on one side; -1 for all."""
    if value.ndim:
        raise errors.InvalidArgumentError(f"{name} must be scalar, got shape {shape_text(value.shape)}")
    width = int(value)
    if width > limit:
        raise errors.InvalidArgumentError(
            f"{name} must be negative or less or equal to number of {of} ({limit}) got: {width}"
        )
    return max(width, -1)


@kernel("MatrixBandPart", T=MATRIX_TYPES, cost=_matrix_ns, scratch=16)
@kernel("BatchMatrixBandPart", T=dtypes.NUMBER, cost=_matrix_ns)
def matrix_band_part(c: OpKernelConstruction) -> Compute:
    """Return the input with zeros outside of a band around the main diagonal."""
    xp = c.xp
    zero = c.attr("T").np.type(0)
    where = chooser(xp, c.attr("T").np)

    def compute(x: Any, num_lower: Any, num_upper: Any) -> Any:
        _check_matrix(x)
        rows, columns = x.shape[-2:]
        below = _half_width("num_lower", num_lower, rows, "rows")
        above = _half_width("num_upper", num_upper, columns, "columns")
        if (below < 0 and above < 0) or not x.size:
            return x
        row, column = xp.arange(rows, dtype=np.int32)[:, None], xp.arange(columns, dtype=np.int32)
        if below < 0:
            keep = column <= row + above
        elif above < 0:
            keep = column >= row - below
        else:
            keep = (column >= row - below) & (column <= row + above)
        return where(keep, x, zero)

    return compute
