"""`tf.ragged`: making ragged tensors, and functions of their values.

Next to read: `../values/ragged.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.building import placeholder as _placeholder
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.values.ragged import RaggedTensor, RaggedTensorValue
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "boolean_mask",
    "constant",
    "constant_value",
    "map_flat_values",
    "placeholder",
    "range",
    "segment_ids_to_row_splits",
]

_INT64 = dtypes.int64


def _depth(value: Any) -> int:
    """The number of nested lists around a value; arrays count by their axes."""
    if isinstance(value, np.ndarray):
        return value.ndim
    if not isinstance(value, list | tuple):
        return 0
    return 1 + max((_depth(item) for item in value), default=0)


def constant_value(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    row_splits_dtype: Any = "int64",
) -> Any:
    """`tf.ragged.constant_value`: nested lists as a `RaggedTensorValue`; by default only the first axis is uniform."""
    kind = as_dtype(row_splits_dtype).np
    depth = _depth(pylist)
    if depth == 0:
        return np.array(pylist, None if dtype is None else as_dtype(dtype).np)
    inner = None if inner_shape is None else [int(size) for size in np.atleast_1d(inner_shape)]
    if ragged_rank is None:
        ragged_rank = max(0, depth - 1 - (0 if inner is None else len(inner)))
    elif not 0 <= ragged_rank < max(depth, 1):
        raise errors.InvalidValueError(f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank}")
    values, splits = list(pylist), []
    for _ in np.arange(ragged_rank):
        if not all(isinstance(row, list | tuple | np.ndarray) for row in values):
            raise errors.InvalidValueError(f"Invalid pylist={pylist!r}: scalars and lists are mixed")
        splits.append(np.cumsum([0, *(len(row) for row in values)]).astype(kind))
        values = [item for row in values for item in row]
    flat = _array(values, dtype)
    if inner is not None:
        flat = flat.reshape([-1, *inner])
    for one in reversed(splits):
        flat = RaggedTensorValue(flat, one)
    return flat


def _array(values: Any, dtype: Any) -> Any:
    given = None if dtype is None else as_dtype(dtype)
    if given is None:
        found = np.array(values)
        if found.dtype == np.float64 or not len(values):
            return found.astype(np.float32)
        if found.dtype == np.int64:
            return found.astype(np.int32)
        return found.astype(object) if found.dtype.kind in "SU" else found
    return np.array(values, object if given is dtypes.string else given.np)


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> Any:
    """`tf.ragged.constant`: nested lists as a constant ragged tensor, or a tensor if no axis is ragged."""
    with name_scope(name or "RaggedConstant"):
        return _tensors(constant_value(pylist, dtype, ragged_rank, inner_shape, row_splits_dtype), dtype)


def _tensors(value: Any, dtype: Any) -> Any:
    if isinstance(value, RaggedTensorValue):
        return RaggedTensor(_tensors(value.values, dtype), convert_to_tensor(value.row_splits))
    return convert_to_tensor(value, None if dtype is None else as_dtype(dtype))


def placeholder(dtype: Any, ragged_rank: int, value_shape: Any = None, name: str | None = None) -> Any:
    """`tf.ragged.placeholder`: feed its `flat_values` and `nested_row_splits`, or a `RaggedTensorValue`."""
    with name_scope(name or "RaggedPlaceholder"):
        flat = _placeholder(dtype, [None, *(value_shape or ())], "flat_values")
        splits = [_placeholder(_INT64, [None], f"row_splits_{number}") for number in np.arange(ragged_rank)]
        return RaggedTensor.from_nested_row_splits(flat, splits)


def range(
    starts: Any,
    limits: Any = None,
    deltas: Any = 1,
    dtype: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = _INT64,
) -> RaggedTensor:
    """`tf.ragged.range`: a ragged tensor with a row of numbers per start, limit and step."""
    if limits is None:
        starts, limits = 0, starts
    with name_scope(name or "RaggedRange"):
        wanted = None if dtype is None else as_dtype(dtype)
        bounds = [convert_to_tensor(part, wanted) for part in (starts, limits, deltas)]
        kind = wanted or next((part.dtype.base for part in bounds if part.dtype.is_floating), bounds[0].dtype.base)
        cast = [part if part.dtype.base is kind else ops.cast(part, DstT=kind) for part in bounds]
        first, last, step = cast
        splits, values = ops.ragged_range(first, last, step, Tsplits=as_dtype(row_splits_dtype))
        return RaggedTensor(values, splits)


def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`tf.ragged.map_flat_values`: a function of the innermost values of ragged tensors with the same rows.

    Raises ValueError if the function changes the number of rows.
    """
    ragged = [value for value in (*args, *kwargs.values()) if isinstance(value, RaggedTensor)]
    if not ragged:
        return op(*args, **kwargs)

    def flat(value: Any) -> Any:
        return value.flat_values if isinstance(value, RaggedTensor) else value

    found = op(*map(flat, args), **{key: flat(value) for key, value in kwargs.items()})
    before, after = ragged[0].flat_values.static_shape, found.static_shape
    if after.rank == 0 or (before.rank and after.rank and None not in (before[0], after[0]) and before[0] != after[0]):
        raise errors.InvalidValueError(
            f"tf.ragged.map_flat_values requires that the output of `op` have {before[0]} rows"
        )
    return ragged[0].with_flat_values(found)


def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Tensor:
    """`tf.ragged.segment_ids_to_row_splits`: where each row begins, and the end."""
    made = RaggedTensor.from_value_rowids(segment_ids, segment_ids, num_segments, name or "SegmentIdsToRaggedSplits")
    return ops.cast(made.row_splits, DstT=_INT64 if out_type is None else as_dtype(out_type))


def boolean_mask(data: Any, mask: Any, name: str | None = None) -> RaggedTensor:
    """`tf.ragged.boolean_mask`: the values of each row at which a mask, [rows, columns] or ragged, is True."""
    with name_scope(name or "RaggedMask"):
        if isinstance(data, RaggedTensor) != isinstance(mask, RaggedTensor):
            raise errors.UnsupportedError("ragged.boolean_mask: data and mask are both ragged, or neither is")
        if not isinstance(data, RaggedTensor):
            value, keep = convert_to_tensor(data), convert_to_tensor(mask, dtypes.bool_)
            lengths = ops.sum(ops.cast(keep, DstT=_INT64), [1])
            return RaggedTensor.from_row_lengths(ops.gather_nd(value, ops.where(keep)), lengths)
        keep = mask.flat_values
        ids, rows = data.value_rowids(), data.nrows()
        lengths = ops.unsorted_segment_sum(ops.cast(keep, DstT=_INT64), ids, rows)
        return RaggedTensor.from_row_lengths(ops.gather_nd(data.flat_values, ops.where(keep)), lengths)


_PARTS = "take its `values` and `row_splits`, and make it of those again"

__getattr__, __dir__ = namespace(
    __name__,
    {name: f"values.ragged:{name}" for name in ("RaggedTensorValue", "row_splits_to_segment_ids")},
    {
        **dict.fromkeys("stack stack_dynamic_partitions".split(), _PARTS),
        **dict.fromkeys("cross cross_hashed".split(), "use aexec.ops.ragged_cross"),
    },
)
