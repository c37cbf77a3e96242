"""The kernels that change a variable: one builder for the op on a ref and the one on a handle.

`state_ops` and `resource_variable_ops` register them.  All of them have the variable to
themselves while they write, whatever attr `use_locking` says, and check everything before.
How a value that somebody has read stays what it was is in `framework/tensor_cell.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.inline_call import check_inline
from aexec.framework.loop_budget import COPY_NS
from aexec.framework.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.resource_variable import VariableLookup
from aexec.framework.shape import shape_text
from aexec.framework.tensor_cell import TensorCell, Writing, private_copy
from aexec.framework.unshared import is_unshared
from aexec.kernels.array.slice_ops import SliceSpec, assign_slice
from aexec.kernels.common import scattering

__all__ = [
    "DENSE_COST",
    "SCATTERS",
    "count_up_to",
    "dense_update",
    "owned",
    "scatter_cost",
    "strided_slice_assign",
]

# Changes rows of an array [n, ...] in place: (array, positions of rows, rows).
Combine = Callable[[Any, Any, Any], None]

# Nanoseconds per element of the inputs: a pass over memory; a row found and changed.
DENSE_COST = 0.5
_SCATTER_COST = 8.0


def scatter_cost(_variable: Any, indices: Any, updates: Any) -> float:
    """What a scatter is expected to take, which does not grow with the variable."""
    return float(_SCATTER_COST * (indices.size + updates.size))


def owned(inputs: list[Any], position: int) -> Any:
    """An input as an array that a cell can take as its value: itself if nobody else has it, else a copy.

    The value of another device is never written again, and is taken as it is.
    """
    if is_unshared(inputs, position) or not isinstance(inputs[position], np.ndarray | np.generic):
        return inputs[position]
    check_inline(inputs[position].nbytes * COPY_NS)
    return private_copy(inputs[position])


def _changing(c: OpKernelConstruction, change: Callable[..., None], wrong_type: str) -> Compute:
    """The compute callable of `change(cell, *inputs)`, where the first input refers to the cell."""
    if c.input_types[0].is_ref:

        def compute_ref(cell: TensorCell, *inputs: Any) -> TensorCell:
            change(cell, *inputs)
            return cell

        return compute_ref
    dtype = c.attrs.get("dtype") or c.attr("T")
    lookup = VariableLookup()
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, *inputs: Any) -> None:
        variable = lookup(context.resources, handle)
        if variable.dtype is not dtype:
            raise errors.InvalidArgumentError(wrong_type)
        change(variable, *inputs)

    return compute


def dense_update(op: Any) -> Builder:
    """`variable = op(variable, value)`, element by element."""

    def build(c: OpKernelConstruction) -> Compute:
        is_ref = c.input_types[0].is_ref

        def refuse(have: tuple[int, ...], given: tuple[int, ...]) -> errors.InvalidArgumentError:
            if is_ref:
                return errors.InvalidArgumentError(
                    "Parameters and update must be the same size, "
                    f"got shapes {shape_text(have)} and {shape_text(given)}"
                )
            return errors.InvalidArgumentError(
                f"Cannot update variable with shape {shape_text(have)} using a Tensor "
                f"with shape {shape_text(given)}, shapes must be equal."
            )

        def change(cell: TensorCell, delta: Any) -> None:
            def updated(value: Any, out: Any) -> Any:
                if value.shape != delta.shape:
                    raise refuse(value.shape, delta.shape)
                return op(value, delta, out)

            cell.update(updated)

        return _changing(c, change, "DType of variable handle and value does not match.")

    return build


def scatter(combine: Combine) -> Builder:
    """Rows of the variable, or one scalar for all of them, combined with those at `indices`."""

    def build(c: OpKernelConstruction) -> Compute:
        def change(cell: TensorCell, indices: Any, updates: Any) -> None:
            indices = np.asarray(indices)
            with Writing(cell) as (array,):
                _check_rows(array, indices, updates)
                if not indices.size:
                    return
                flat = indices.reshape(-1)
                if flat.min() < 0 or flat.max() >= len(array):
                    scattering.refuse_index(indices, len(array))
                inner = array.shape[1:]
                if updates.ndim:
                    rows = updates.reshape(flat.size, *inner)
                else:
                    rows = np.broadcast_to(updates, (flat.size, *inner))
                    check_inline(rows.size * _SCATTER_COST)
                combine(array, flat.astype(np.int64, copy=False), rows)

        return _changing(c, change, "DType of scatter resource and updates does not match.")

    return build


def _check_rows(array: Any, indices: Any, updates: Any) -> None:
    if not array.ndim:
        raise errors.InvalidArgumentError(f"params must be at least 1-D, got shape {shape_text(array.shape)}")
    if updates.ndim and updates.shape != indices.shape + array.shape[1:]:
        raise errors.InvalidArgumentError(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], "
            f"got updates.shape {shape_text(updates.shape)}, indices.shape {shape_text(indices.shape)}, "
            f"params.shape {shape_text(array.shape)}"
        )


def _divide(out: Any, index: Any, rows: Any) -> None:
    """The `Combine` of division, which rounds integers towards zero."""
    if out.dtype.kind not in "iu":
        scattering.accumulate(np.divide, out, index, rows)
        return
    if not rows.all():
        raise errors.InvalidArgumentError("Integer division by zero")
    if out.dtype.kind == "u":
        scattering.accumulate(np.floor_divide, out, index, rows)
        return
    # Magnitudes and signs each by themselves, and only of the rows that change.
    touched, where = np.unique(index, return_inverse=True)
    values, unsigned = out[touched], np.dtype(f"u{out.dtype.itemsize}")
    magnitudes, signs = np.abs(values).view(unsigned), np.sign(values)
    scattering.accumulate(np.floor_divide, magnitudes, where, np.abs(rows).view(unsigned))
    scattering.accumulate(np.multiply, signs, where, np.sign(rows))
    out[touched] = magnitudes.view(out.dtype) * signs


def scatter_nd(combine: Combine) -> Builder:
    """Elements or slices combined with those at the index tuples in the last dimension of `indices`."""

    def build(c: OpKernelConstruction) -> Compute:
        scattered = scattering.NdScatter(c, combine)

        def change(cell: TensorCell, indices: Any, updates: Any) -> None:
            indices, updates = np.asarray(indices), np.asarray(updates)
            scattering.check_ranks(indices, updates)
            with Writing(cell) as (array,):
                if not array.size and prod(indices.shape[:-1]) and updates.size:
                    raise errors.InvalidArgumentError(
                        f"Indices and updates specified for empty output.  indices shape: {shape_text(indices.shape)}"
                    )
                scattering.check_scatter_nd(array.shape, indices, updates)
                scattered(array, indices, updates)

        return _changing(c, change, "DType of scatter resource and updates does not match.")

    return build


def strided_slice_assign(c: OpKernelConstruction) -> Compute:
    """A strided slice of the variable is set to `value`, which may be broadcast."""
    spec = SliceSpec(c)

    def change(cell: TensorCell, begin: Any, end: Any, strides: Any, value: Any) -> None:
        with Writing(cell) as (array,):
            part = array[spec.index(array.shape, begin, end, strides)]
            check_inline(part.nbytes * COPY_NS)
            assign_slice(part, value)

    return _changing(c, change, "l-value dtype does not match r-value dtype")


def count_up_to(c: OpKernelConstruction) -> Compute:
    """The variable's value, a scalar below `limit`, before it is incremented.

    OutOfRangeError once the limit is reached.
    """
    limit, dtype, is_ref = c.attr("limit"), c.attr("T"), c.input_types[0].is_ref

    def count(cell: TensorCell) -> Any:
        before = None

        def increment(value: Any, out: Any) -> Any:
            nonlocal before
            if value.ndim:
                raise errors.InvalidArgumentError(f"input is not a scalar: {shape_text(value.shape)}")
            if value >= limit:
                raise errors.OutOfRangeError(f"Reached limit of {limit}")
            before = value[()]
            return np.add(value, 1, out, dtype=value.dtype)

        cell.update(increment)
        return before

    if is_ref:
        return count
    lookup = VariableLookup()
    c.need_context()

    def compute(context: OpKernelContext, handle: Any) -> Any:
        variable = lookup(context.resources, handle)
        if variable.dtype is not dtype:
            raise errors.InvalidArgumentError(f"Data types do not match: {dtype} and {variable.dtype}")
        return count(variable)

    return compute


def _subtract(out: Any, index: Any, rows: Any) -> None:
    """As C++ subtracts: of bools, whether they differ."""
    scattering.accumulate(np.logical_xor if out.dtype == bool else np.subtract, out, index, rows)


_add, _multiply = scattering.combiner(np, "add"), scattering.combiner(np, "multiply")
_max, _min = scattering.extremum(np, "maximum", -np.inf), scattering.extremum(np, "minimum", np.inf)

# Op on refs → its builder, and the types it is for.
SCATTERS: dict[str, tuple[Builder, tuple[dtypes.DType, ...]]] = {
    "ScatterAdd": (scatter(_add), dtypes.NUMBER),
    "ScatterSub": (scatter(_subtract), dtypes.NUMBER),
    "ScatterMul": (scatter(_multiply), dtypes.NUMBER),
    "ScatterDiv": (scatter(_divide), dtypes.NUMBER),
    "ScatterMax": (scatter(_max), dtypes.REAL_NUMBER),
    "ScatterMin": (scatter(_min), dtypes.REAL_NUMBER),
    "ScatterUpdate": (scatter(scattering.replace), dtypes.ALL),
    "ScatterNdAdd": (scatter_nd(_add), dtypes.POD),
    "ScatterNdSub": (scatter_nd(_subtract), dtypes.POD),
    "ScatterNdMax": (scatter_nd(_max), dtypes.REAL_NUMBER),
    "ScatterNdMin": (scatter_nd(_min), dtypes.REAL_NUMBER),
    "ScatterNdUpdate": (scatter_nd(scattering.replace), (*dtypes.POD, dtypes.string)),
}
