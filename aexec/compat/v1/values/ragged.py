"""`tf.RaggedTensor`: rows of different lengths, stored as concatenated values and the positions where rows begin.

Next to read: `../functions/ragged.py`, then `aexec/kernels/ragged/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import listed
from aexec.compat.v1.values.default_session import default_session
from aexec.compat.v1.values.operations import consumers as consumers_of
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.compat.v1.values.static_values import get_static_value
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.runtime.feeding.fetches import register_fetch_type

__all__ = ["RaggedTensor", "RaggedTensorValue", "row_splits_to_segment_ids"]

_INT64 = dtypes.int64


class RaggedTensorValue(NamedTuple):
    """The arrays that a run returns for a ragged tensor; `values` may be another of these."""

    values: Any
    row_splits: Any

    @property
    def dtype(self) -> Any:
        """The NumPy type of the innermost values."""
        return self.values.dtype

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The splits of each ragged axis, the outermost first."""
        inner = self.values.nested_row_splits if isinstance(self.values, RaggedTensorValue) else ()
        return (self.row_splits, *inner)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, None for each ragged axis, and the sizes of inner values."""
        return (len(self.row_splits) - 1, None, *self.values.shape[1:])

    @property
    def flat_values(self) -> Any:
        """The innermost values."""
        return self.values.flat_values if isinstance(self.values, RaggedTensorValue) else self.values

    @property
    def ragged_rank(self) -> int:
        """The number of axes whose rows have different lengths."""
        return 1 + (self.values.ragged_rank if isinstance(self.values, RaggedTensorValue) else 0)

    def to_list(self) -> list[Any]:
        """Nested lists of Python values."""
        inner = self.values.to_list() if isinstance(self.values, RaggedTensorValue) else self.values.tolist()
        bounds = self.row_splits.tolist()
        return [inner[begin:end] for begin, end in pairwise(bounds)]


class RaggedTensor:
    """`tf.RaggedTensor`: made by its class methods.

    Attributes:
        values: the values of all rows, concatenated: a tensor, or another ragged tensor.
        row_splits: [rows + 1], int32 or int64: the position in `values` at which each row begins, and the end.
        uniform_row_length: the length of every row, a scalar of the same dtype; None if lengths may differ.
    """

    def __init__(self, values: Any, row_splits: Tensor, uniform_row_length: Tensor | None = None) -> None:
        self.values = values
        self.row_splits = row_splits
        self.uniform_row_length = uniform_row_length

    # Making

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows from `row_splits`."""
        with name_scope(name or "RaggedFromRowSplits"):
            splits = convert_to_tensor(row_splits, None if hasattr(row_splits, "dtype") else _INT64, "row_splits")
            if splits.dtype.base not in (dtypes.int32, _INT64):
                raise errors.InvalidValueError(f"row_splits must be int32 or int64, got {splits.dtype.base}")
            return cls(values if isinstance(values, RaggedTensor) else convert_to_tensor(values), splits)

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows from their lengths, [rows]."""
        with name_scope(name or "RaggedFromRowLengths"):
            lengths = ops.cast(convert_to_tensor(row_lengths), DstT=_INT64)
            return cls.from_row_splits(values, ops.concat_v2([[0], ops.cumsum(lengths, 0)], 0))

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows from the positions at which they begin, [rows]; the last row ends with the values."""
        with name_scope(name or "RaggedFromRowStarts"):
            starts = ops.cast(convert_to_tensor(row_starts), DstT=_INT64)
            kept = values if isinstance(values, RaggedTensor) else convert_to_tensor(values)
            return cls.from_row_splits(kept, ops.concat_v2([starts, ops.reshape(_rows(kept), [1])], 0))

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows from the positions at which they end, [rows]."""
        with name_scope(name or "RaggedFromRowLimits"):
            return cls.from_row_splits(
                values, ops.concat_v2([[0], ops.cast(convert_to_tensor(row_limits), DstT=_INT64)], 0)
            )

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: Any, nrows: Any = None, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows from the row number of each value, in ascending order."""
        with name_scope(name or "RaggedFromValueRowIds"):
            ids = ops.cast(convert_to_tensor(value_rowids), DstT=_INT64)
            if nrows is None:
                nrows = ops.maximum(ops.max(ops.concat_v2([[-1], ids], 0), [0]) + 1, 0)
            count = ops.cast(convert_to_tensor(nrows), DstT=_INT64)
            lengths = ops.unsorted_segment_sum(ops.ones_like(ids), ids, count)
            return cls.from_row_lengths(values, lengths)

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Any, name: str | None = None, validate: bool = True
    ) -> Any:
        """Make a ragged tensor from the `row_splits` of several axes, outermost first."""
        found = flat_values
        for splits in reversed(list(nested_row_splits)):
            found = cls.from_row_splits(found, splits)
        return found

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> Any:
        """Make a ragged tensor from the row lengths of several axes, outermost first."""
        with name_scope(name or "RaggedFromNestedRowLengths"):
            found = flat_values
            for lengths in reversed(listed("nested_row_lengths", nested_row_lengths)):
                found = cls.from_row_lengths(found, lengths)
            return found

    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: Any,
        nested_value_rowids: Any,
        nested_nrows: Any = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Make a ragged tensor from the row numbers of several axes, outermost first, and the number of rows of each.

        Raises:
            ValueError: `nested_nrows` does not have a number per axis.
        """
        rows = listed("nested_value_rowids", nested_value_rowids)
        counts = [None] * len(rows) if nested_nrows is None else listed("nested_nrows", nested_nrows)
        if len(counts) != len(rows):
            raise errors.InvalidValueError(
                "Argument `nested_nrows` must have the same length as argument `nested_value_rowids`. "
                f"len(nested_nrows) = {len(counts)} vs. len(nested_values_rowids) = {len(rows)}."
            )
        with name_scope(name or "RaggedFromNestedValueRowIds"):
            found = flat_values
            for ids, count in reversed(list(zip(rows, counts, strict=True))):
                found = cls.from_value_rowids(found, ids, count)
            return found

    @classmethod
    def from_uniform_row_length(
        cls, values: Any, uniform_row_length: Any, nrows: Any = None, validate: bool = True, name: str | None = None
    ) -> RaggedTensor:
        """Make rows of the same length.  For length 0, `nrows` gives the number of rows, 0 by default."""
        with name_scope(name or "RaggedFromUniformRowLength"):
            kept = values if isinstance(values, RaggedTensor) else convert_to_tensor(values)
            kind = kept.row_splits.dtype.base if isinstance(kept, RaggedTensor) else _INT64
            length = ops.cast(convert_to_tensor(uniform_row_length), DstT=kind)
            one = convert_to_tensor(1, kind)
            if nrows is None:
                nrows = ops.floor_div(ops.cast(_rows(kept), DstT=kind), ops.maximum(length, one))
            count = ops.cast(convert_to_tensor(nrows), DstT=kind)
            return cls(kept, ops.range(one - one, count + one, one) * length, length)

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = _INT64,
    ) -> RaggedTensor:
        """Make rows from those of a tensor, cut to `lengths`, or without the padding at their ends."""
        if ragged_rank != 1:
            raise errors.UnsupportedError(f"RaggedTensor.from_tensor: ragged_rank={ragged_rank!r} is not supported")
        if lengths is not None and padding is not None:
            raise errors.InvalidValueError("Specify lengths or padding, but not both")
        with name_scope(name or "RaggedFromTensor"):
            value = convert_to_tensor(tensor)
            sizes = ops.cast(ops.shape(value), DstT=_INT64)
            rows, columns = sizes[0], sizes[1]
            if padding is not None:
                other = ops.not_equal(value, convert_to_tensor(padding, value.dtype.base))
                more = list(range(2, value.static_shape.rank or 2))
                kept = ops.any(other, more) if more else other
                places = ops.cast(kept, DstT=_INT64) * (
                    ops.range(convert_to_tensor(0, _INT64), columns, convert_to_tensor(1, _INT64)) + 1
                )
                lengths = ops.max(places, [1])
            if lengths is None:
                lengths = ops.fill(ops.expand_dims(rows, 0), columns)
            counts = ops.minimum(ops.cast(convert_to_tensor(lengths), DstT=_INT64), columns)
            inside = ops.less(
                ops.range(convert_to_tensor(0, _INT64), columns, convert_to_tensor(1, _INT64)),
                ops.expand_dims(counts, 1),
            )
            flat = ops.gather_nd(value, ops.where(inside))
            made = cls.from_row_lengths(flat, counts)
            return cls(made.values, ops.cast(made.row_splits, DstT=dtypes.as_dtype(row_splits_dtype)))

    @classmethod
    def from_sparse(
        cls, st_input: SparseTensor, name: str | None = None, row_splits_dtype: Any = _INT64
    ) -> RaggedTensor:
        """Make rows from a sparse matrix; a run fails unless the values of each row are in its first columns."""
        with name_scope(name or "RaggedFromSparse"):
            made = cls.from_value_rowids(st_input.values, st_input.indices[:, 0], st_input.dense_shape[0])
            return cls(made.values, ops.cast(made.row_splits, DstT=dtypes.as_dtype(row_splits_dtype)))

    # Properties

    @property
    def dtype(self) -> dtypes.DType:
        """Type of the values."""
        found: dtypes.DType = self.flat_values.dtype.base
        return found

    @property
    def flat_values(self) -> Tensor:
        """The innermost values."""
        return self.values.flat_values if isinstance(self.values, RaggedTensor) else self.values

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        """The splits of each ragged axis, the outermost first."""
        inner = self.values.nested_row_splits if isinstance(self.values, RaggedTensor) else ()
        return (self.row_splits, *inner)

    @property
    def ragged_rank(self) -> int:
        """The number of axes whose rows have different lengths."""
        return len(self.nested_row_splits)

    @property
    def shape(self) -> TensorShape:
        """The known static shape; a ragged size is None."""
        size = self.row_splits.static_shape[0]
        length = None if self.uniform_row_length is None else get_static_value(self.uniform_row_length)
        values = self.values
        inner = values.shape if isinstance(values, RaggedTensor) else TensorShape(list(values.static_shape))
        rows = None if size is None else size - 1
        return TensorShape([rows, None if length is None else int(length), *inner.as_list()[1:]])

    def get_shape(self) -> TensorShape:
        """The known static shape."""
        return self.shape

    def nrows(self, out_type: Any = None, name: str | None = None) -> Tensor:
        """The number of rows."""
        count = ops.shape(self.row_splits, out_type=self.row_splits.dtype.base)[0] - 1
        return count if out_type is None else ops.cast(count, DstT=dtypes.as_dtype(out_type), name=name)

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Tensor:
        """The lengths of the rows.  Raises UnimplementedError for inner axes."""
        if axis != 1:
            raise errors.UnsupportedError(f"RaggedTensor.row_lengths: axis={axis!r} is not supported; ask its `values`")
        return ops.sub(self.row_splits[1:], self.row_splits[:-1], name=name)

    def row_starts(self, name: str | None = None) -> Tensor:
        """Where each row begins."""
        return self.row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Tensor:
        """Where each row ends."""
        return self.row_splits[1:]

    def value_rowids(self, name: str | None = None) -> Tensor:
        """The row of each value."""
        return row_splits_to_segment_ids(self.row_splits, name)

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The lengths of rows of each ragged axis, the outermost first."""
        with name_scope(name or "RaggedNestedRowLengths"):
            inner = self.values.nested_row_lengths() if isinstance(self.values, RaggedTensor) else ()
            return (self.row_lengths(), *inner)

    def nested_value_rowids(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The rows of values of each ragged axis, the outermost first."""
        with name_scope(name or "RaggedNestedValueRowIds"):
            inner = self.values.nested_value_rowids() if isinstance(self.values, RaggedTensor) else ()
            return (self.value_rowids(), *inner)

    def consumers(self) -> list[Node]:
        """The nodes that take its values or its splits."""
        inner = self.values.consumers() if isinstance(self.values, RaggedTensor) else consumers_of(self.values)
        return list(dict.fromkeys([*inner, *consumers_of(self.row_splits)]))

    def bounding_shape(self, axis: Any = None, name: str | None = None, out_type: Any = None) -> Tensor:
        """The sizes of the smallest tensor that holds it."""
        if axis is not None:
            return self.bounding_shape(None, name, out_type)[axis]
        kind = self.row_splits.dtype.base if out_type is None else dtypes.as_dtype(out_type)
        sizes = [ops.expand_dims(self.nrows(), 0)]
        for splits in self.nested_row_splits:
            lengths = splits[1:] - splits[:-1]
            sizes.append(ops.expand_dims(ops.max(ops.concat_v2([ops.zeros_like(splits[:1]), lengths], 0), [0]), 0))
        sizes.append(ops.shape(self.flat_values, out_type=self.row_splits.dtype.base)[1:])
        return ops.cast(ops.concat_v2([ops.cast(size, DstT=kind) for size in sizes], 0), DstT=kind)

    # Other forms

    def numpy(self) -> Any:
        """Raise ValueError: a graph has no values; a run returns them."""
        raise errors.InvalidValueError("RaggedTensor.numpy() is only supported in eager mode.")

    def to_list(self) -> list[Any]:
        """Raise ValueError: a graph has no values; those that a run returns have `to_list`."""
        raise errors.InvalidValueError("to_list can only be used in eager mode.")

    def with_values(self, new_values: Any) -> RaggedTensor:
        """The same rows of other values."""
        made = RaggedTensor.from_row_splits(new_values, self.row_splits)
        return RaggedTensor(made.values, made.row_splits, self.uniform_row_length)

    def with_row_splits_dtype(self, dtype: Any) -> RaggedTensor:
        """The same rows with int32 or int64 splits.  Raises ValueError for other types."""
        kind = dtypes.as_dtype(dtype)
        if kind not in (dtypes.int32, _INT64):
            raise errors.InvalidValueError(f"Argument `row_splits` dtype must be int32 or int64. Received {kind}.")
        if self.row_splits.dtype.base is kind:
            return self
        values = self.values.with_row_splits_dtype(kind) if isinstance(self.values, RaggedTensor) else self.values
        length = self.uniform_row_length
        splits = ops.cast(self.row_splits, DstT=kind)
        return RaggedTensor(values, splits, None if length is None else ops.cast(length, DstT=kind))

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Merge a range of axes into one; the result is a tensor if no axis is ragged any more.

        Raises:
            ValueError: an axis does not exist, or the outer one is not before the inner one.
        """
        rank = self.shape.rank
        outer, inner = (_axis(name, axis, rank) for name, axis in (("outer", outer_axis), ("inner", inner_axis)))
        if outer > inner:
            raise errors.InvalidValueError(
                f"Expected outer_axis ({outer}) to be less than or equal to inner_axis ({inner})."
            )
        return _merged(self, outer, inner)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """The same rows of other innermost values."""
        inner = self.values
        return self.with_values(inner.with_flat_values(new_values) if isinstance(inner, RaggedTensor) else new_values)

    def to_tensor(self, default_value: Any = None, name: str | None = None, shape: Any = None) -> Tensor:
        """Convert to a dense tensor; rows are padded with `default_value`, by default 0 or ""."""
        flat = self.flat_values
        if default_value is None:
            default_value = np.array(b"", object) if flat.dtype.base is dtypes.string else 0
        sizes = [-1] if shape is None else [-1 if size is None else size for size in TensorShape(shape).as_list()]
        wanted: Any = convert_to_tensor(-1 if shape is None else sizes, self.row_splits.dtype.base)
        return ops.ragged_tensor_to_tensor(
            wanted,
            flat,
            convert_to_tensor(default_value, flat.dtype.base),
            list(self.nested_row_splits),
            ["ROW_SPLITS"] * self.ragged_rank,
            name=name,
        )

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """A sparse tensor of the values."""
        splits = [ops.cast(part, DstT=_INT64) for part in self.nested_row_splits]
        return SparseTensor(*ops.ragged_tensor_to_sparse(splits, self.flat_values, name=name))

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> RaggedTensorValue:
        """The value in a session, by default that of the `with` block."""
        found: RaggedTensorValue = (session or default_session()).run(self, feed_dict)
        return found

    def __getitem__(self, key: Any) -> Any:
        """A row for an int; rows for a slice of step 1.  Raises UnimplementedError for others."""
        if isinstance(key, int | np.integer):
            splits = self.row_splits
            at = int(key)
            begin, end = (splits[at], splits[at + 1]) if at >= 0 else (splits[at - 1], splits[at])
            return self.values[begin:end]
        if isinstance(key, slice) and key.step in (None, 1):
            splits = self.row_splits
            stop = key.stop if key.stop is not None else self.nrows()
            if isinstance(stop, int) and stop < 0:
                stop = self.nrows() + stop
            start = 0 if key.start is None else key.start
            if isinstance(start, int) and start < 0:
                start = self.nrows() + start
            return RaggedTensor(self.values, splits[start : stop + 1])._from_zero()
        raise errors.UnsupportedError(f"RaggedTensor: the index {key!r} is not supported; take its `values`")

    def _from_zero(self) -> RaggedTensor:
        """The same rows, with values and splits that begin at 0 and end with the last row."""
        first, last = self.row_splits[0], self.row_splits[-1]
        return RaggedTensor(self.values[first:last], self.row_splits - first)

    def _elementwise(self, op: Any, other: Any, *, swapped: bool = False) -> RaggedTensor:
        flat = self.flat_values
        if isinstance(other, RaggedTensor):
            if other.ragged_rank != self.ragged_rank:
                raise errors.InvalidValueError("ragged tensors of different ranks are not broadcast")
            other = other.flat_values
        elif convert_to_tensor(other, flat.dtype.base).static_shape.rank != 0:
            raise errors.UnsupportedError("RaggedTensor: operators take ragged tensors of the same rows, and scalars")
        return self.with_flat_values(op(other, flat) if swapped else op(flat, other))

    def __add__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x + y, other)

    def __radd__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x + y, other, swapped=True)

    def __sub__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x - y, other)

    def __rsub__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x - y, other, swapped=True)

    def __mul__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x * y, other)

    def __rmul__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x * y, other, swapped=True)

    def __truediv__(self, other: Any) -> RaggedTensor:
        return self._elementwise(lambda x, y: x / y, other)

    def __neg__(self) -> RaggedTensor:
        return self.with_flat_values(-self.flat_values)

    def __repr__(self) -> str:
        return f"tf.RaggedTensor(values={self.values!r}, row_splits={self.row_splits!r})"


def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """`tf.ragged.row_splits_to_segment_ids`: the row of each value."""
    with name_scope(name or "RaggedSplitsToSegmentIds"):
        given = convert_to_tensor(splits, None if hasattr(splits, "dtype") else _INT64)
        kind = given.dtype.base if out_type is None else dtypes.as_dtype(out_type)
        count = ops.expand_dims(given[-1], 0)
        ends = ops.unsorted_segment_sum(ops.ones_like(given[1:-1]), given[1:-1], count[0] + 1)
        return ops.cast(ops.slice(ops.cumsum(ends, 0), ops.zeros_like(count), count), DstT=kind)


def _rows(values: Any) -> Tensor:
    """The number of rows of values, int64."""
    if isinstance(values, RaggedTensor):
        return values.nrows(_INT64)
    return ops.shape(values, out_type=_INT64)[0]


def _axis(name: str, axis: int, rank: int | None) -> int:
    """An axis that may count from the end.  Raises ValueError if there is none."""
    if (rank is not None and not -rank <= axis < rank) or (rank is None and axis < 0):
        bound = "statically known" if rank is None else f"[-{rank}, {rank})"
        raise errors.InvalidValueError(f"{name}_axis={axis} out of bounds: expected {bound} rank(self)")
    return axis if axis >= 0 else axis + (rank or 0)


def _merged(value: Any, outer: int, inner: int) -> Any:
    """Merge a range of axes of a tensor, ragged or not, into one."""
    if outer == inner:
        return value
    if not isinstance(value, RaggedTensor):
        sizes = ops.shape(value)
        return ops.reshape(value, ops.concat_v2([sizes[:outer], [-1], sizes[inner + 1 :]], 0))
    if outer == 0:
        return _merged(value.values, 0, inner - 1)
    if outer > 1:
        return value.with_values(_merged(value.values, outer - 1, inner - 1))
    within, splits = value.values, value.row_splits
    if isinstance(within, RaggedTensor):
        joined = RaggedTensor(within.values, ops.gather_v2(within.row_splits, splits, 0))
        return _merged(joined, 1, inner - 1)
    # Flattening values [n, a, b, …] to a vector multiplies all positions by a × b × ….
    size = ops.prod(ops.shape(within, out_type=splits.dtype.base)[1:inner], [0])
    return RaggedTensor(_merged(within, 0, inner - 1), splits * size)


def _parts(ragged: RaggedTensor) -> list[Tensor]:
    return [ragged.flat_values, *ragged.nested_row_splits]


def _value(parts: Any) -> RaggedTensorValue:
    flat, *splits = parts
    for one in reversed(splits):
        flat = RaggedTensorValue(flat, one)
    found: RaggedTensorValue = flat
    return found


register_fetch_type(RaggedTensor, _parts, _value, _parts)
