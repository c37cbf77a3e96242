"""`CSRSparseMatrix`: a sparse matrix in compressed rows, or a batch of them, as variants hold it.

Next to read: `csr_matrix_ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.memory.allocator import announce, announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.wire import variant

__all__ = ["CSRSparseMatrix", "csr_from_entries", "csr_of", "csr_of_parts"]

Array = Any
_LARGEST = 2**31 - 1
_TYPES = (np.float32, np.float64, np.complex64, np.complex128)
# Bytes per entry while entries are sorted and counted.
_SORT_BYTES = 48


@variant.register_variant
@dataclass(frozen=True)
class CSRSparseMatrix:
    """One matrix, or a batch of matrices, whose entries follow one another.

    Attributes:
        shape: rows and columns, of a batch after its size.
        batch_pointers: int32 [batch + 1]: where the entries of each matrix begin.
        row_pointers: int32 [batch * (rows + 1)]: where the entries of each row begin, counted in its matrix.
        columns: int32 [entries].
        values: [entries], of a type of floats or complex numbers.
    """

    shape: tuple[int, ...]
    batch_pointers: Array
    row_pointers: Array
    columns: Array
    values: Array

    type_name = "tensorflow::CSRSparseMatrix"

    @property
    def batch(self) -> int:
        """The number of matrices."""
        return self.shape[0] if len(self.shape) == 3 else 1

    @property
    def tensors(self) -> tuple[Array, ...]:
        return self.batch_pointers, self.row_pointers, self.columns, self.values

    @property
    def type_text(self) -> str:
        """The element type's name in messages."""
        return str(dtypes.from_numpy(self.values.dtype))

    def encode(self) -> variant.VariantTensorData:
        shape = np.array(self.shape, np.int64)
        return variant.VariantTensorData(self.type_name, b"", [shape, *self.tensors])

    @classmethod
    def decode(cls, data: variant.VariantTensorData) -> CSRSparseMatrix:
        """Raises InvalidArgumentError unless the tensors are a matrix or a batch of them."""
        if len(data.tensors) != 5 or any(tensor.ndim != 1 for tensor in data.tensors):
            raise errors.InvalidArgumentError("a CSRSparseMatrix has five vectors")
        shape, *tensors = data.tensors
        if shape.dtype != np.int64 or any(tensor.dtype != np.int32 for tensor in tensors[:3]):
            raise errors.InvalidArgumentError("a CSRSparseMatrix has an int64 shape and int32 indices")
        found = cls(tuple(shape.tolist()), *tensors)
        found.check()
        return found

    def check(self) -> None:
        """Raise InvalidArgumentError unless the parts fit each other."""
        _check_shape(self.shape)
        rows, columns = self.shape[-2:]
        starts, row_starts = self.batch_pointers, self.row_pointers
        fits = len(starts) == self.batch + 1 and len(row_starts) == self.batch * (rows + 1)
        fits = fits and self.values.dtype.type in _TYPES and len(self.values) == len(self.columns)
        fits = fits and starts[0] == 0 and starts[-1] == len(self.values) and bool((np.diff(starts) >= 0).all())
        if fits and self.batch:
            table = row_starts.reshape(self.batch, rows + 1)
            fits = bool((table[:, 0] == 0).all() and (np.diff(table) >= 0).all())
            fits = fits and bool((table[:, -1] == np.diff(starts)).all())
        if not fits or (self.columns.size and not 0 <= self.columns.min() <= self.columns.max() < columns):
            raise errors.InvalidArgumentError("the parts of a CSRSparseMatrix do not fit each other")

    def with_values(self, values: Array) -> CSRSparseMatrix:
        """The same places with other values."""
        return replace(self, values=values)

    def parts(self, number: int) -> tuple[Array, Array, Array]:
        """Row pointers, columns and values of one matrix."""
        rows = self.shape[-2] + 1
        entries = slice(int(self.batch_pointers[number]), int(self.batch_pointers[number + 1]))
        return self.row_pointers[number * rows : (number + 1) * rows], self.columns[entries], self.values[entries]

    def scipy(self, number: int) -> Any:
        """One matrix as SciPy's."""
        from scipy import sparse

        pointers, columns, values = self.parts(number)
        return sparse.csr_array((values, columns, pointers), shape=self.shape[-2:])

    def row_lengths(self) -> Array:
        """[batch * rows]: how many entries each row has."""
        return np.diff(self.row_pointers.reshape(self.batch, self.shape[-2] + 1)).reshape(-1)

    def indices(self) -> Array:
        """int64 [entries, rank]: the places of the entries, by matrix and row."""
        rank, rows = len(self.shape), self.shape[-2]
        out = np.empty((len(self.values), rank), np.int64)
        announce(out.nbytes)
        row = np.repeat(np.arange(self.batch * rows), self.row_lengths())
        out[:, rank - 1] = self.columns
        out[:, rank - 2] = row % max(rows, 1)
        if rank == 3:
            out[:, 0] = row // max(rows, 1)
        return out


def _check_shape(shape: Sequence[int]) -> None:
    if len(shape) not in (2, 3) or min(shape) < 0 or max(shape) > _LARGEST:
        raise errors.InvalidArgumentError(f"a sparse matrix cannot have shape {shape_text(shape)}")


def csr_from_entries(indices: Array, values: Array, shape: tuple[int, ...]) -> CSRSparseMatrix:
    """The matrix, or batch, of the entries at these places, int64 [entries, rank]; rows are brought into order.

    Raises:
        InvalidArgumentError: an index is out of bounds, or the shape is none of a matrix.
        ResourceExhaustedError: there are too many rows.
    """
    _check_shape(shape)
    announce_scratch(_SORT_BYTES * len(indices))
    outside = ((indices < 0) | (indices >= np.array(shape))).any(axis=1)
    if outside.any():
        at = int(outside.argmax())
        raise errors.InvalidArgumentError(
            f"Sparse index tuple indices[{at}, :] = [{', '.join(map(str, indices[at].tolist()))}] is out of bounds"
        )
    rows, batch = shape[-2], shape[0] if len(shape) == 3 else 1
    announce(4 * (batch * (rows + 2) + 1 + len(indices)) + values.nbytes)
    row = indices[:, -2] + (indices[:, 0] * rows if len(shape) == 3 else 0)
    columns = indices[:, -1].astype(np.int32)
    if (row[1:] < row[:-1]).any():
        order = row.argsort(kind="stable")
        row, columns, values = row[order], columns[order], values[order]
    lengths = np.bincount(row, minlength=batch * rows).reshape(batch, rows)
    row_pointers = np.zeros((batch, rows + 1), np.int32)
    np.cumsum(lengths, axis=1, out=row_pointers[:, 1:])
    batch_pointers = np.zeros(batch + 1, np.int32)
    np.cumsum(lengths.sum(axis=1), out=batch_pointers[1:])
    return CSRSparseMatrix(shape, batch_pointers, row_pointers.reshape(-1), columns, values)


def csr_of_parts(parts: Sequence[Any], shape: tuple[int, ...], dtype: Any) -> CSRSparseMatrix:
    """SciPy's matrices as the batch of this shape, or, if it has rank 2, as the only matrix."""
    announce(sum(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes for part in parts))

    def joined(first: Any, type_: Any, pieces: Sequence[Array]) -> Array:
        return np.concatenate([np.array(first, type_), *pieces]).astype(type_, copy=False)

    return CSRSparseMatrix(
        shape,
        joined([0], np.int32, [np.cumsum([part.nnz for part in parts], dtype=np.int32)]),
        joined([], np.int32, [part.indptr for part in parts]),
        joined([], np.int32, [part.indices for part in parts]),
        joined([], dtype, [part.data for part in parts]),
    )


def csr_of(tensor: Array, wanted: Any = None, what: str = "") -> CSRSparseMatrix:
    """The matrix in a scalar variant tensor.

    Raises:
        InvalidArgumentError: it holds something else, or its elements are not of the type `wanted`.
    """
    value = tensor.item() if isinstance(tensor, np.ndarray) and tensor.size == 1 else tensor
    found = variant.get(value, CSRSparseMatrix)
    if found is None:
        raise errors.InvalidArgumentError("Could not retrieve a CSRSparseMatrix from the variant")
    if wanted is not None and found.values.dtype != wanted:
        ours, theirs = found.type_text, dtypes.from_numpy(np.dtype(wanted))
        raise errors.InvalidArgumentError(
            f"{what} is not equal to 'type': {ours} vs. {theirs}"
            if what
            else f"Asked for a CSRSparseMatrix of type {theirs} but saw dtype: {ours}"
        )
    return found
