"""Kernels that fill the empty rows of sparse and ragged tensors, so that each has at least one entry.

Next to read: `array_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.math.math_ops import all_below
from aexec.kernels.math.reduction_ops import accumulation_type
from aexec.kernels.sparse.sparse_tensors import ascending, check_shape

__all__: list[str] = []

_COST = 20.0


def _check_rank(array: Any, rank: int, name: str) -> None:
    if array.ndim != rank:
        kind = ("scalar", "vector", "matrix")[rank]
        raise errors.InvalidArgumentError(f"{name} must be a {kind}, saw: {shape_text(array.shape)}")


def _fill(xp: Any, allocate: Any, rows: Any, count: int) -> tuple[Any, Any, Any | None]:
    """Return which rows are empty, the position of each entry in the output, and the row of each output entry.

    The last is None if nothing is inserted or moved.

    Args:
        allocate: makes the array of bools.
        rows: row of each entry, in any order.
        count: number of rows.
    """
    check_shape([count])
    if not count and rows.size:
        raise errors.InvalidArgumentError(
            f"Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {rows.size}"
        )
    if not all_below(rows, count, xp):
        wrong = int(((rows < 0) | (rows >= count)).nonzero()[0][0])
        raise errors.InvalidArgumentError(f"indices({wrong}, 0) is invalid: {int(rows[wrong])} >= {count}")
    is_empty = allocate(count, xp.ones)
    is_empty[rows] = False
    empty = is_empty.nonzero()[0]
    order = ascending(rows)
    if not empty.size and type(order) is slice:
        return is_empty, xp.arange(rows.size), None
    ordered = rows[order]
    # An entry moves up by the number of empty rows before its own.
    places = xp.empty(rows.size, np.int64)
    places[order] = xp.arange(rows.size) + xp.searchsorted(empty, ordered)
    out_rows = xp.empty(rows.size + empty.size, np.int64)
    out_rows[places] = rows
    out_rows[xp.searchsorted(ordered, empty) + xp.arange(empty.size)] = empty
    return is_empty, places, out_rows


def _placed(xp: Any, values: Any, places: Any, total: int, default: Any) -> Any:
    """The values at their positions, and the default elsewhere."""
    result = xp.empty((total, *values.shape[1:]), values.dtype)
    result[...] = default
    result[places] = values
    return result


def _rows_cost(rows: Any, values: Any, count: Any, default: Any) -> Any:
    """Nanoseconds; `count` is the number of rows of the output, or begins with it."""
    return _COST * (values.size + max(0, int(count.reshape(-1)[0])) if count.size else values.size)


def _rows_scratch(rows: Any, values: Any, count: Any, default: Any) -> Any:
    """Bytes of the positions of entries and of rows."""
    return 32 * (values.size + max(0, int(count.reshape(-1)[0]))) if count.size else 0


@kernel("SparseFillEmptyRows", T=dtypes.ALL, host_memory=("dense_shape",), cost=_rows_cost, scratch=_rows_scratch)
def sparse_fill_empty_rows(c: OpKernelConstruction) -> Compute:
    """Return the tensor with a default value in column 0 of empty rows, which rows those are, and where entries
    went.
    """
    xp, allocate = c.xp, allocator(c, 2)

    def compute(indices: Any, values: Any, shape: Any, default: Any) -> Any:
        _check_rank(shape, 1, "dense_shape")
        _check_rank(indices, 2, "indices")
        _check_rank(values, 1, "values")
        if len(indices) != values.size:
            raise errors.InvalidArgumentError(
                f"The length of `values` ({values.size}) must match the first dimension of `indices` ({len(indices)})."
            )
        _check_rank(default, 0, "default_value")
        if shape.size != indices.shape[1]:
            raise errors.InvalidArgumentError(
                f"The length of `dense_shape` ({shape.size}) must match the second dimension of `indices` "
                f"({indices.shape[1]})."
            )
        if not shape.size:
            raise errors.InvalidArgumentError("Dense shape cannot be empty.")
        is_empty, places, out_rows = _fill(xp, allocate, indices[:, 0], int(shape[0]))
        if out_rows is None:
            return indices.copy(), values.copy(), is_empty, places
        out_indices = _placed(xp, indices, places, out_rows.size, 0)
        out_indices[:, 0] = out_rows
        return out_indices, _placed(xp, values, places, out_rows.size, default), is_empty, places

    return compute


@kernel("RaggedFillEmptyRows", T=dtypes.ALL, host_memory=("nrows",), cost=_rows_cost, scratch=_rows_scratch)
def ragged_fill_empty_rows(c: OpKernelConstruction) -> Compute:
    """Like `sparse_fill_empty_rows`, for values of which only the row is given."""
    xp, allocate = c.xp, allocator(c, 2)

    def compute(row_ids: Any, values: Any, row_count: Any, default: Any) -> Any:
        _check_rank(row_count, 0, "nrows")
        _check_rank(row_ids, 1, "value_rowids")
        _check_rank(values, 1, "values")
        if row_ids.size != values.size:
            raise errors.InvalidArgumentError(
                f"The length of `values` ({values.size}) must match the first dimension of `value_rowids` "
                f"({row_ids.size})."
            )
        _check_rank(default, 0, "default_value")
        is_empty, places, out_rows = _fill(xp, allocate, row_ids, int(row_count))
        if out_rows is None:
            return row_ids.copy(), values.copy(), is_empty, places
        return out_rows, _placed(xp, values, places, out_rows.size, default), is_empty, places

    return compute


@kernel("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad", T=dtypes.NUMBER, cost=5.0, scratch=36)
def fill_empty_rows_grad(c: OpKernelConstruction) -> Compute:
    """Return the gradients of the values, and of the default: the sum over the inserted entries."""
    xp, out, work = c.xp, c.attr("T").np, accumulation_type(c.attr("T"))

    def compute(places: Any, gradient: Any) -> Any:
        _check_rank(places, 1, "reverse_index_map")
        _check_rank(gradient, 1, "grad_values")
        wrong = ((places < 0) | (places >= gradient.size)).nonzero()[0]
        if wrong.size:
            raise errors.InvalidArgumentError(
                f"Elements in reverse index must be in [0, {gradient.size}) but got {int(places[wrong[0]])}"
            )
        filled = xp.ones(gradient.size, bool)
        filled[places] = False
        return gradient[places], xp.where(filled, gradient, xp.zeros_like(gradient)).sum(dtype=work).astype(out)

    return compute
