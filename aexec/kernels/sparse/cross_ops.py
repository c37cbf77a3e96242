"""Feature crosses: for each row of a batch all combinations of one feature of every column.

A combination is the features' texts joined by a separator, or a hash of them.  All rows are computed at once; only
texts are joined one by one.
Next to read: `aexec/kernels/ragged/cross_ops.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.strings import elements_of, joining, made, string_array, values_of
from aexec.kernels.sparse.sparse_tensors import group_starts
from aexec.numerics.farmhash import siphash
from aexec.numerics.farmhash_rows import fingerprint64_strings

__all__ = ["SEPARATOR", "Column", "crossings", "dense_column", "hashed", "joined", "sparse_column", "words_of"]

Words = np.ndarray[Any, np.dtype[np.uint64]]

SEPARATOR = b"_X_"
_MULTIPLIER = np.uint64(0xC6A4A7935BD1E995)
_INT64_MAX = np.uint64(2**63 - 1)
_COST = 500.0
# Nanoseconds in which the texts of a combination are joined.
_JOIN_NS = 300.0
# Bytes per group of rows of a column; bytes of a hash, and the number of those that are made of two.
_GROUP_BYTES, _HASH_BYTES, _STEPS = 32, 8, 4
# Values whose texts are there at a time.
_HASHED_AT_ONCE = 1 << 14


@dataclass
class Column:
    """Features of one column: those of row r are values[starts[r] : starts[r] + counts[r]].

    Attributes:
        rows: the rows that have features, ascending.
        is_dense: the column came as a dense matrix.
    """

    values: Any
    rows: Any
    starts: Any
    counts: Any
    is_dense: bool


def sparse_column(indices: Any, values: Any, batch: int) -> Column:
    """A column of the features up to the first one that is out of order, as in TensorFlow."""
    rows = indices[:, 0]
    falls = (rows[1:] < rows[:-1]).nonzero()[0]
    rows = rows[: falls[0] + 1] if falls.size else rows
    rows = rows[: rows.searchsorted(batch)] if rows.size and rows[0] >= 0 else rows[:0]
    starts = group_starts(rows)
    announce_scratch(2 * rows.size + _GROUP_BYTES * starts.size)
    ends = np.append(starts[1:], rows.size)
    return Column(values, rows[starts], starts, ends - starts, is_dense=False)


def dense_column(matrix: Any) -> Column:
    announce_scratch(_GROUP_BYTES * len(matrix))
    rows = np.arange(matrix.shape[0] if matrix.shape[1] else 0)
    counts = np.full(rows.size, matrix.shape[1])
    return Column(matrix.reshape(-1), rows, rows * matrix.shape[1], counts, is_dense=True)


def _shift_mix(words: Words) -> Words:
    return words ^ (words >> np.uint64(47))


def _concatenated(first: Any, second: Words) -> Words:
    """The fingerprint of two fingerprints in sequence."""
    with np.errstate(over="ignore"):
        result = (first ^ _MULTIPLIER) ^ (_shift_mix(second * _MULTIPLIER) * _MULTIPLIER)
        result = _shift_mix(result * _MULTIPLIER) * _MULTIPLIER
    return _shift_mix(result)


# ---- Inputs


def _check_sparse(indices: Sequence[Any], values: Sequence[Any], shapes: Sequence[Any], internal: DType | None) -> None:
    for i, index in enumerate(indices):
        if index.ndim != 2:
            raise errors.InvalidArgumentError(
                f"Input indices should be a matrix but received shape {shape_text(index.shape)} at position {i}"
            )
        if index.shape[1] != 2:
            raise errors.InvalidArgumentError(f"Expected D2 of index to be 2 got {index.shape[1]} at position {i}")
    for i, (index, value) in enumerate(zip(indices, values, strict=True)):
        _check_internal(value, internal, "Input values")
        if value.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input values should be a vector but received shape {shape_text(value.shape)} at position {i}"
            )
        if len(index) != value.size:
            raise errors.InvalidArgumentError(
                f"Expected size of values to be {len(index)} got {value.size} at position {i}"
            )
    for i, shape in enumerate(shapes):
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input shapes should be a vector but received shape {shape_text(shape.shape)} at position {i}"
            )
        if shape.size != 2:
            raise errors.InvalidArgumentError(
                f"shape should imply a 2D tensor, but got {shape_text(shape.shape)} at position {i}"
            )


def _check_internal(values: Any, internal: DType | None, name: str) -> None:
    if internal is dtypes.string and values.dtype != object:
        raise errors.InvalidArgumentError(
            f"{name} should be of internal type {internal.enum} but received {dtypes.int64.enum}"
        )


def _columns(c: OpKernelConstruction, internal: DType | None) -> Callable[[Sequence[Any]], tuple[list[Column], int]]:
    """A function from the inputs to the columns and the number of rows.  Raises as `_made`."""
    count = c.attr("N")
    ranges = [slice(*c.input_range(name)) for name in ("indices", "values", "shapes", "dense_inputs")]

    def columns(inputs: Sequence[Any]) -> tuple[list[Column], int]:
        indices, values, shapes, dense = (inputs[positions] for positions in ranges)
        if len(values) != count:
            raise errors.InvalidArgumentError(f"Expected {count} input values, got {len(values)}")
        return _made(indices, values, shapes, dense, internal)

    return columns


def _made(
    indices: Sequence[Any], values: Sequence[Any], shapes: Sequence[Any], dense: Sequence[Any], internal: DType | None
) -> tuple[list[Column], int]:
    """Return the columns and the number of rows.  Raises InvalidArgumentError for inputs that do not match."""
    _check_sparse(indices, values, shapes, internal)
    for i, matrix in enumerate(dense):
        _check_internal(matrix, internal, "Dense inputs")
        if matrix.ndim != 2:
            raise errors.InvalidArgumentError(
                f"Dense inputs should be a matrix but received shape {shape_text(matrix.shape)} at position {i}"
            )
    sizes = [(int(shape[0]), f"at position {i}") for i, shape in enumerate(shapes)]
    sizes += [(matrix.shape[0], f"at dense tensor {i}") for i, matrix in enumerate(dense)]
    batch = sizes[0][0] if sizes else 0
    for size, where in sizes:
        if size != batch:
            raise errors.InvalidArgumentError(f"Expected batch size {batch} got {size} {where}")
    columns = [sparse_column(i, v, batch) for i, v in zip(indices, values, strict=True)]
    return columns + [dense_column(matrix) for matrix in dense], batch


def crossings(columns: Sequence[Column], check_room: Callable[[int], Any]) -> tuple[Any, Any, list[Any]]:
    """Every combination of one feature of each column, row by row; the last column varies fastest.

    Args:
        columns: at least one.
        check_room: called with the number of combinations before they are made.

    Returns:
        The row of each combination, its number within the row, and for each column the positions of its features.
    """
    rows = columns[0].rows
    for column in columns[1:]:
        if not np.array_equal(rows, column.rows):
            rows = np.intersect1d(rows, column.rows, assume_unique=True)
    places = [column.rows.searchsorted(rows) for column in columns]
    counts = [column.counts[place] for column, place in zip(columns, places, strict=True)]
    if all((count == 1).all() for count in counts):  # as words mostly are
        check_room(rows.size)
        firsts = [column.starts[place] for column, place in zip(columns, places, strict=True)]
        return rows, np.zeros(rows.size, np.int64), firsts
    products = np.prod([count.astype(np.float64) for count in counts], axis=0)
    check_room(int(products.sum()))
    totals = np.prod(counts, axis=0, dtype=np.int64)
    ends = totals.cumsum()
    number = np.arange(int(totals.sum())) - np.repeat(ends - totals, totals)
    rest, features = number, []
    for column, place, count in reversed(list(zip(columns, places, counts, strict=True))):
        rest, choice = np.divmod(rest, np.repeat(count, totals))
        features.append(np.repeat(column.starts[place], totals) + choice)
    return np.repeat(rows, totals), number, features[::-1]


# ---- Crossing


def _texts(values: Any) -> list[bytes]:
    return values_of(values) if values.dtype == object else made(b"%d" % value for value in elements_of(values))


def joined(columns: Sequence[Column], features: Sequence[Any], separator: bytes) -> Any:
    """The texts of combinations."""
    texts, join = [_texts(column.values) for column in columns], joining(separator)
    chosen = [map(text.__getitem__, elements_of(places)) for text, places in zip(texts, features, strict=True)]
    return string_array([join(parts) for parts in giving_way(zip(*chosen, strict=True), _JOIN_NS)])


def hashed(start: int | None, words: Sequence[Words], features: Sequence[Any], buckets: int) -> Any:
    """The hashes of combinations: of `start`, if not None, then of the features' words, modulo the buckets."""
    announce_scratch(_HASH_BYTES * (len(words) + _STEPS) * features[0].size)
    chosen = [word[places] for word, places in zip(words, features, strict=True)]
    result = chosen.pop(0) if start is None else np.uint64(start & 0xFFFFFFFFFFFFFFFF)
    for word in chosen:
        result = _concatenated(result, word)
    return (result % (np.uint64(buckets) if buckets > 0 else _INT64_MAX)).astype(np.int64)


def words_of(values: Any) -> Words:
    """Fingerprints of texts; integers unchanged."""
    return fingerprint64_strings(values_of(values)) if values.dtype == object else values.astype(np.uint64)


def _keyed_words(column: Column, key: Sequence[int] | None) -> Words:
    """Words for SparseCrossHashed, which hashes the lower 32 bits of an integer."""
    values = column.values
    if values.dtype != object and key is None and column.is_dense:
        return words_of(values)
    announce_scratch(_HASH_BYTES * values.size)
    words = np.empty(values.size, np.uint64)
    for start in range(0, values.size, _HASHED_AT_ONCE):
        part = slice(start, start + _HASHED_AT_ONCE)
        words[part] = _hashes(values[part], key)
    return words


def _hashes(values: Any, key: Sequence[int] | None) -> Any:
    if values.dtype != object:
        values = string_array(made(struct.pack("<I", value & 0xFFFFFFFF) for value in elements_of(values)))
    if key is None:
        return words_of(values)
    return np.fromiter((siphash(text, key) for text in elements_of(values)), np.uint64, values.size)


def _outputs(c: OpKernelConstruction) -> Callable[[Sequence[Column], int, Callable[[list[Any]], Any]], Any]:
    allocate = allocator(c)

    def make(columns: Sequence[Column], batch: int, values: Callable[[list[Any]], Any]) -> Any:
        if not columns:
            return np.empty((0, 2), np.int64), np.empty(0, c.output_types[1].np), np.array([batch, 0], np.int64)
        rows, number, features = crossings(columns, lambda count: allocate((count, 2 + len(columns))))
        shape = np.array([batch, number.max(initial=-1) + 1], np.int64)
        return np.stack((rows, number), axis=1).astype(np.int64, copy=False), values(features), shape

    return make


@kernel("SparseCross", out_type=(dtypes.int64, dtypes.string), internal_type=(dtypes.int64, dtypes.string), cost=_COST)
def sparse_cross(c: OpKernelConstruction) -> Compute:
    """Return crosses as texts, or hashed with a key."""
    make, columns_of = _outputs(c), _columns(c, c.attr("internal_type"))
    buckets, key, to_hash = c.attr("num_buckets"), c.attr("hash_key"), c.attr("out_type") is dtypes.int64

    def compute(*inputs: Any) -> Any:
        columns, batch = columns_of(inputs)

        def values(features: list[Any]) -> Any:
            if to_hash:
                return hashed(key, [words_of(column.values) for column in columns], features, buckets)
            return joined(columns, features, SEPARATOR)

        return make(columns, batch, values)

    return compute


@kernel("SparseCrossV2", cost=_COST)
def sparse_cross_v2(c: OpKernelConstruction) -> Compute:
    """Return crosses as texts with the separator of an input."""
    make, columns_of = _outputs(c), _columns(c, None)

    def compute(*inputs: Any) -> Any:
        columns, batch = columns_of(inputs)
        separator = inputs[-1]
        if separator.ndim:
            raise errors.InvalidArgumentError(
                f"Input separator should be a scalar. Received: Tensor<type: string shape: "
                f"{shape_text(separator.shape)} values: {' '.join(str(v, 'utf-8', 'replace') for v in separator.flat)}>"
            )
        return make(columns, batch, lambda features: joined(columns, features, separator.item()))

    return compute


@kernel("SparseCrossHashed", cost=_COST)
def sparse_cross_hashed(c: OpKernelConstruction) -> Compute:
    """Return crosses hashed, with a salt if `strong_hash` is set."""
    make, columns_of = _outputs(c), _columns(c, None)

    def compute(*inputs: Any) -> Any:
        columns, batch = columns_of(inputs)
        buckets, strong, salt = inputs[-3:]
        if salt.shape != (2,):
            raise errors.InvalidArgumentError(f'Input "salt" must have length 2 but has length {salt.size}')
        if buckets.ndim or strong.ndim:
            raise errors.InvalidArgumentError("num_buckets and strong_hash must be scalars")
        key = salt.tolist() if strong else None

        def values(features: list[Any]) -> Any:
            return hashed(None, [_keyed_words(column, key) for column in columns], features, int(buckets))

        return make(columns, batch, values)

    return compute
