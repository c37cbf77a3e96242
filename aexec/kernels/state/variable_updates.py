"""The kernels that change a variable: one builder for the op on a ref and the one on a handle.

`state_ops` and `resource_variable_ops` register them.  Each holds the variable exclusively while it writes, even
without the attr `use_locking`, and checks everything before it writes. `framework/state/tensor_cell.py` explains how a
value that was read stays unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.memory.tensor_buffer import measuring_ns
from aexec.framework.memory.unshared import is_unshared
from aexec.framework.shape import shape_text
from aexec.framework.state.resource_variable import ResourceVariable, VariableLookup
from aexec.framework.state.tensor_cell import TensorCell, Writing, private_copy
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.kernels.array.slice_ops import SliceSpec, assign_slice
from aexec.kernels.common import scattering
from aexec.kernels.common.distinct import distinct

__all__ = [
    "DENSE_COST",
    "SCATTERS",
    "WRONG_SCATTER_TYPE",
    "WRONG_SLICE_TYPE",
    "WRONG_TYPE",
    "Scatter",
    "check_assigned_shape",
    "check_assigned_type",
    "check_read_type",
    "count_up_to",
    "dense_update",
    "owned",
    "same_shape_check",
    "scatter_cost",
    "strided_slice_assign",
    "variable_finder",
    "variable_type",
]

# Changes rows of an array [n, ...] in place: (array, positions of rows, rows).
Combine = Callable[[Any, Any, Any], None]
# Changes an array in place: (array, indices, updates).
Scattered = Callable[[Any, Any, Any], None]

# The message for a variable whose type is not the node's.
WRONG_TYPE = "DType of variable handle and value does not match."
WRONG_SCATTER_TYPE = "DType of scatter resource and updates does not match."
WRONG_SLICE_TYPE = "l-value dtype does not match r-value dtype"

# Nanoseconds per element of the inputs: a pass over memory; a row found and changed.
DENSE_COST = 0.5
_SCATTER_COST = 8.0


def scatter_cost(_variable: Any, indices: Any, updates: Any) -> float:
    """Nanoseconds of a scatter; they do not depend on the variable's size."""
    return float(_SCATTER_COST * (indices.size + updates.size))


def owned(inputs: list[Any], position: int) -> Any:
    """Return an input as an array that a cell can keep: itself if nothing else holds it, else a copy.

    A value of another device is never overwritten, and is taken as it is.
    """
    if not isinstance(inputs[position], np.ndarray | np.generic):
        return inputs[position]
    measuring = measuring_ns(inputs[position])  # the value will be kept
    if is_unshared(inputs, position):
        check_inline(measuring)
        return inputs[position]
    check_inline(inputs[position].nbytes * COPY_NS + measuring)
    return private_copy(inputs[position])


def _changing(c: OpKernelConstruction, change: Callable[..., None], wrong_type: str) -> Compute:
    """The compute callable of `change(cell, *inputs)`, where the first input refers to the cell."""
    c.in_any_thread = True
    if c.input_types[0].is_ref:

        def compute_ref(cell: TensorCell, *inputs: Any) -> TensorCell:
            change(cell, *inputs)
            return cell

        return compute_ref
    find = variable_finder(c, wrong_type)
    c.need_context()
    return lambda context, handle, *inputs: change(find(context, handle), *inputs)


def variable_type(c: OpKernelConstruction) -> dtypes.DType:
    """The type of the variable whose handle a node takes."""
    dtype: dtypes.DType = c.attrs.get("dtype") or c.attr("T")
    return dtype


def variable_finder(c: OpKernelConstruction, wrong_type: str) -> Callable[[OpKernelContext, Any], ResourceVariable]:
    """A function from a context and a handle to the variable.

    It raises the errors of `VariableLookup`, and InvalidArgumentError with `wrong_type` for a variable of another type.
    """
    dtype, lookup = variable_type(c), VariableLookup()

    def find(context: OpKernelContext, handle: Any) -> ResourceVariable:
        variable = lookup(context.resources, handle)
        if variable.dtype is not dtype:
            raise errors.InvalidArgumentError(wrong_type)
        return variable

    return find


def same_shape_check(c: OpKernelConstruction) -> Callable[[Any, Any], None]:
    """A function that raises InvalidArgumentError unless a variable's value and its update have one shape."""
    is_ref = c.input_types[0].is_ref

    def check(value: Any, delta: Any) -> None:
        if value.shape == delta.shape:
            return
        have, given = shape_text(value.shape), shape_text(delta.shape)
        raise errors.InvalidArgumentError(
            f"Parameters and update must be the same size, got shapes {have} and {given}"
            if is_ref
            else f"Cannot update variable with shape {have} using a Tensor with shape {given}, shapes must be equal."
        )

    return check


def dense_update(op: Any) -> Builder:
    """`variable = op(variable, value)`, element by element."""

    def build(c: OpKernelConstruction) -> Compute:
        check = same_shape_check(c)

        def change(cell: TensorCell, delta: Any) -> None:
            def updated(value: Any, out: Any) -> Any:
                check(value, delta)
                return op(value, delta, out)

            cell.update(updated)

        return _changing(c, change, WRONG_TYPE)

    return build


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """A way to write rows into a variable.

    Attributes:
        combine: from the array module, makes the function that changes rows.
        types, device_types: the types that the host's kernels take, and those of devices.
        nd: the indices are tuples, in the last dimension of `indices`.
    """

    combine: Callable[[Any], Combine]
    types: tuple[dtypes.DType, ...]
    device_types: tuple[dtypes.DType, ...]
    nd: bool = False

    def into(self, c: OpKernelConstruction) -> Scattered:
        """A function that scatters for a node into an array of `c.xp`, after all checks."""
        combine = self.combine(c.xp)
        return _scattered_nd(c, combine) if self.nd else _scattered_rows(c.xp, combine)

    def build(self, c: OpKernelConstruction) -> Compute:
        """The host's kernel."""
        scattered = self.into(c)

        def change(cell: TensorCell, indices: Any, updates: Any) -> None:
            indices, updates = np.asarray(indices), np.asarray(updates)
            with Writing(cell) as (array,):
                scattered(array, indices, updates)

        return _changing(c, change, WRONG_SCATTER_TYPE)


def _scattered_rows(xp: Any, combine: Combine) -> Scattered:
    """Combines rows, or one scalar for all of them, with the array's rows at `indices`."""

    def scattered(array: Any, indices: Any, updates: Any) -> None:
        _check_rows(array, indices, updates)
        if not indices.size:
            return
        flat = indices.reshape(-1)
        if flat.min() < 0 or flat.max() >= len(array):
            scattering.refuse_index(indices, len(array), xp=xp)
        inner = array.shape[1:]
        if updates.ndim:
            rows = updates.reshape(flat.size, *inner)
        else:
            rows = xp.broadcast_to(updates, (flat.size, *inner))
            check_inline(rows.size * _SCATTER_COST)
        if flat.dtype != np.int64:
            announce_scratch(8 * flat.size)
        combine(array, flat.astype(np.int64, copy=False), rows)

    return scattered


def _check_rows(array: Any, indices: Any, updates: Any) -> None:
    if not array.ndim:
        raise errors.InvalidArgumentError(f"params must be at least 1-D, got shape {shape_text(array.shape)}")
    if updates.ndim and updates.shape != indices.shape + array.shape[1:]:
        raise errors.InvalidArgumentError(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], "
            f"got updates.shape {shape_text(updates.shape)}, indices.shape {shape_text(indices.shape)}, "
            f"params.shape {shape_text(array.shape)}"
        )


def _scattered_nd(c: OpKernelConstruction, combine: Combine) -> Scattered:
    """Combines elements or slices with those at the index tuples in the last dimension of `indices`."""
    scatter = scattering.NdScatter(c, combine)

    def scattered(array: Any, indices: Any, updates: Any) -> None:
        scattering.check_ranks(indices, updates)
        if not array.size and prod(indices.shape[:-1]) and updates.size:
            raise errors.InvalidArgumentError(
                f"Indices and updates specified for empty output.  indices shape: {shape_text(indices.shape)}"
            )
        scattering.check_scatter_nd(array.shape, indices, updates)
        scatter(array, indices, updates)

    return scattered


def strided_slice_assign(c: OpKernelConstruction) -> Compute:
    """Sets a strided slice of the variable to `value`, which may be broadcast."""
    spec = SliceSpec(c)

    def change(cell: TensorCell, begin: Any, end: Any, strides: Any, value: Any) -> None:
        with Writing(cell) as (array,):
            part = array[spec.index(array.shape, begin, end, strides)]
            check_inline(part.nbytes * COPY_NS)
            assign_slice(part, value)

    return _changing(c, change, WRONG_SLICE_TYPE)


def count_up_to(c: OpKernelConstruction) -> Compute:
    """Return the variable's value, a scalar below `limit`, then increments it.

    Raises OutOfRangeError once the limit is reached.
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


def check_assigned_type(variable: ResourceVariable, dtype: dtypes.DType) -> None:
    """Raise InvalidArgumentError if a variable does not have the assigned type."""
    if variable.dtype is not dtype:
        raise errors.InvalidArgumentError(
            f"Trying to assign variable with wrong dtype. Expected {variable.dtype} got {dtype}"
        )


def check_read_type(variable: ResourceVariable, dtype: dtypes.DType) -> None:
    """Raise InvalidArgumentError if a variable does not have the type that is read."""
    if variable.dtype is not dtype:
        raise errors.InvalidArgumentError(
            f"Trying to read variable with wrong dtype. Expected {dtype} got {variable.dtype}"
        )


def check_assigned_shape(value: Any, new: Any) -> None:
    """Raise InvalidArgumentError if the variable's value does not have the assigned shape."""
    given = getattr(new, "shape", None)  # a device's value may have no shape before its stream has computed it
    if value is not None and given is not None and value.shape != given:
        raise errors.InvalidArgumentError(
            "Trying to assign to variable with tensor with wrong shape. "
            f"Expected {shape_text(value.shape)} got {shape_text(given)}"
        )


# Combining rows


def _add(xp: Any) -> Combine:
    return scattering.combiner(xp, "add")


def _subtract(xp: Any) -> Combine:
    """Subtracts as C++ does: for bools, the result is whether they differ."""
    numbers, bools = scattering.combiner(xp, "subtract"), scattering.combiner(xp, "logical_xor")

    def combine(out: Any, index: Any, rows: Any) -> None:
        (bools if out.dtype == bool else numbers)(out, index, rows)

    return combine


def _multiply(xp: Any) -> Combine:
    return scattering.combiner(xp, "multiply")


def _divide(xp: Any) -> Combine:
    """Division, which rounds integers towards zero; on devices for floats only."""
    return _divide_on_host if xp is np else partial(_divide_by_product, xp)


def _divide_by_product(xp: Any, out: Any, index: Any, rows: Any) -> None:
    divisors = xp.ones_like(out)
    _multiply(xp)(divisors, index, rows)
    out /= divisors


def _divide_on_host(out: Any, index: Any, rows: Any) -> None:
    if out.dtype.kind not in "iu":
        scattering.accumulate(np.divide, out, index, rows)
        return
    if not rows.all():
        raise errors.InvalidArgumentError("Integer division by zero")
    if out.dtype.kind == "u":
        scattering.accumulate(np.floor_divide, out, index, rows)
        return
    # Magnitudes and signs separately, and only of the rows that change.
    touched, where = distinct(index)
    values, unsigned = out[touched], np.dtype(f"u{out.dtype.itemsize}")
    magnitudes, signs = np.abs(values).view(unsigned), np.sign(values)
    scattering.accumulate(np.floor_divide, magnitudes, where, np.abs(rows).view(unsigned))
    scattering.accumulate(np.multiply, signs, where, np.sign(rows))
    out[touched] = magnitudes.view(out.dtype) * signs


def _max(xp: Any) -> Combine:
    return scattering.extremum(xp, "maximum", -np.inf)


def _min(xp: Any) -> Combine:
    return scattering.extremum(xp, "minimum", np.inf)


def _replace(_: Any) -> Combine:
    return scattering.replace


def _scatter(combine: Callable[[Any], Combine], types: Iterable[dtypes.DType], **options: Any) -> Scatter:
    types = tuple(types)
    return Scatter(combine, types, types, **options)


# Op on refs → its scatter.
SCATTERS: dict[str, Scatter] = {
    "ScatterAdd": _scatter(_add, dtypes.NUMBER),
    "ScatterSub": _scatter(_subtract, dtypes.NUMBER),
    "ScatterMul": _scatter(_multiply, dtypes.NUMBER),
    "ScatterDiv": Scatter(_divide, tuple(dtypes.NUMBER), (*dtypes.FLOAT, *dtypes.COMPLEX)),
    "ScatterMax": _scatter(_max, dtypes.REAL_NUMBER),
    "ScatterMin": _scatter(_min, dtypes.REAL_NUMBER),
    "ScatterUpdate": _scatter(_replace, dtypes.ALL),
    "ScatterNdAdd": _scatter(_add, dtypes.POD, nd=True),
    "ScatterNdSub": _scatter(_subtract, dtypes.POD, nd=True),
    "ScatterNdMax": _scatter(_max, dtypes.REAL_NUMBER, nd=True),
    "ScatterNdMin": _scatter(_min, dtypes.REAL_NUMBER, nd=True),
    "ScatterNdUpdate": _scatter(_replace, (*dtypes.POD, dtypes.string), nd=True),
}
