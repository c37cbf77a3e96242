"""TensorListStack, Gather and Concat: tensors of the elements of a list.

Elements that were never set are zeros, which are not made one by one: the output is allocated as zeros.
Next to read: `list_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.joining import ROW_NS, joined, stacked
from aexec.kernels.list.list_inputs import ELEMENT_TYPES, shape_input, the_list
from aexec.resources.tensor_list import TensorList

__all__: list[str] = []

# From elements (None for those not set), their number and their shape, makes the tensor with them as rows.
_Stack = Callable[[Sequence[Any], int, PartialTensorShape], Any]


def _stacking(c: OpKernelConstruction) -> _Stack:
    allocate, make, itemsize = allocator(c), c.xp.zeros, c.output_types[0].np.itemsize

    def stack(elements: Sequence[Any], count: int, element_shape: PartialTensorShape) -> Any:
        shape = element_shape.as_tuple()
        check_inline(len(elements) * ROW_NS + count * prod(shape) * itemsize * COPY_NS)
        all_set = len(elements) == count and all(element is not None for element in elements)
        out = allocate((count, *shape)) if all_set else allocate((count, *shape), make)
        return stacked(elements, out, all_set=all_set)

    return stack


@kernel("TensorListStack", element_dtype=ELEMENT_TYPES, cost=0)
def tensor_list_stack(c: OpKernelConstruction) -> Compute:
    dtype, count, stack = c.attr("element_dtype"), c.attr("num_elements"), _stacking(c)

    def compute(handle: Any, element_shape: Any) -> Any:
        values = the_list(handle, dtype)
        if count not in (-1, len(values)):
            raise errors.InvalidArgumentError(
                f"Operation expected a list with {count} elements but got a list with {len(values)} elements."
            )
        shape = values.shape_of(values.elements, shape_input(element_shape))
        if not shape.is_fully_defined:
            what = "list which only contains uninitialized tensors and has a" if len(values) else "elements of an empty"
            raise errors.InvalidArgumentError(
                f"Tried to stack {what} {'' if len(values) else 'list with '}non-fully-defined element_shape: {shape}"
            )
        return stack(values.elements, len(values), shape)

    return compute


# Bytes per position for sorting all positions, and for its Python number.
_POSITION_BYTES = 64


@kernel("TensorListGather", element_dtype=ELEMENT_TYPES, cost=0)
def tensor_list_gather(c: OpKernelConstruction) -> Compute:
    dtype, stack, allocate = c.attr("element_dtype"), _stacking(c), allocator(c)

    def compute(handle: Any, indices: Any, element_shape: Any) -> Any:
        values = the_list(handle, dtype)
        shape = shape_input(element_shape).merge_with(values.element_shape)
        positions = np.ravel(indices)
        if not positions.size and not shape.is_fully_defined:
            raise errors.InvalidArgumentError(
                f"Tried to gather 0-elements from a list with non-fully-defined shape: {shape}"
            )
        check_inline(positions.size * ROW_NS)
        announce_scratch(_POSITION_BYTES * positions.size)
        _check_positions(positions, values, shape_known=values.element_shape.is_fully_defined)
        # Check each element once, however often it is gathered.
        distinct, places = np.unique(positions, return_inverse=True)
        found = [values.get(position) for position in distinct.tolist()]
        shape = values.shape_of(found, shape)
        if not shape.is_fully_defined:
            raise errors.InvalidArgumentError(
                f"Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: {shape}"
            )
        if distinct.size == positions.size:
            return stack([found[place] for place in places.tolist()], positions.size, shape)
        check_inline(positions.size * prod(shape.as_tuple()) * dtype.np.itemsize * COPY_NS)
        rows = stack(found, distinct.size, shape)
        return np.take(rows, places, axis=0, out=allocate((positions.size, *rows.shape[1:])))

    return compute


def _check_positions(positions: Any, values: TensorList, *, shape_known: bool) -> None:
    wrong = positions[(positions < 0) | (positions >= len(values))]
    if wrong.size:
        raise errors.InvalidArgumentError(
            f"Index {wrong[0]} out o range; list only has {len(values)} elements."  # TensorFlow's words
            if shape_known
            else f"Trying to gather element {wrong[0]} in a list with {len(values)} elements."
        )


@kernel("TensorListConcat", "TensorListConcatV2", element_dtype=ELEMENT_TYPES, cost=0)
def tensor_list_concat(c: OpKernelConstruction) -> Compute:
    """Return the concatenated elements, and their lengths."""
    dtype, is_first_version = c.attr("element_dtype"), c.op == "TensorListConcat"
    allocate, make, allocate_lengths = allocator(c), c.xp.zeros, allocator(c, 1)
    of_attr = c.attr("element_shape") if is_first_version else UNKNOWN_RANK

    def compute(handle: Any, *rest: Any) -> Any:
        if of_attr.rank == 0:
            raise errors.InvalidArgumentError("element_shape must not be empty")
        values = the_list(handle, dtype)
        first, inner = _parts(values, of_attr if is_first_version else shape_input(rest[0]), is_first_version)
        given = None if is_first_version else _leading_dims(rest[1])
        check_inline(len(values.elements) * ROW_NS)
        length, inner = _common_shape(values, first, inner)
        if not inner.is_fully_defined:
            raise errors.InvalidArgumentError(
                "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim "
                f"is not fully defined: {inner}"
            )
        lengths = allocate_lengths((len(values),))
        _fill_lengths(lengths, values, length, given)
        return _joined(values, lengths, inner), lengths

    def _joined(values: TensorList, lengths: Any, inner: PartialTensorShape) -> Any:
        shape = (int(lengths.sum()), *inner.as_tuple())
        check_inline(len(values.elements) * ROW_NS + prod(shape) * dtype.np.itemsize * COPY_NS)
        if len(values) and values.is_all_set:
            return joined(values.elements, allocate(shape))
        out = allocate(shape, make)
        ends = np.cumsum(lengths)
        for index, element in enumerate(giving_way(values.elements, ROW_NS)):
            if element is not None:
                end = int(ends[index])
                out[end - len(element) : end] = element
        return out

    return compute


def _parts(
    values: TensorList, wanted: PartialTensorShape, is_first_version: bool
) -> tuple[int | None, PartialTensorShape]:
    """Return the first dimension and the others of the requested shape.  Raises InvalidArgumentError without them."""
    if is_first_version:
        first, inner = None, _without_first(wanted)
    else:
        shape = wanted.merge_with(values.element_shape)
        if shape.rank == 0:
            raise errors.InvalidArgumentError("Concat requires elements to be at least vectors, found scalars instead.")
        first, inner = (shape.dims[0] if shape.dims else None), _without_first(shape)
    if not len(values) and not inner.is_fully_defined:
        raise errors.InvalidArgumentError(
            "All except the first dimension must be fully defined when concating an empty tensor list. "
            f"element_shape: {inner}"
        )
    return first, inner


def _without_first(shape: PartialTensorShape) -> PartialTensorShape:
    return shape if shape.dims is None else PartialTensorShape(shape.dims[1:])


def _leading_dims(tensor: Any) -> Any:
    if np.ndim(tensor) != 1:
        raise errors.InvalidArgumentError(f"leading_dims must be a vector, got rank {np.ndim(tensor)}")
    if tensor.size and tensor.min() < 0:
        raise errors.InvalidArgumentError(f"leading_dims must be >= 0, got {tensor.min()}")
    return tensor


def _common_shape(
    values: TensorList, first: int | None, inner: PartialTensorShape
) -> tuple[int | None, PartialTensorShape]:
    """Return the length of elements that are not set, or None if unknown, and their other dimensions as far as known.

    Raises:
        InvalidArgumentError: an element is a scalar, or has another shape.
    """
    lengths: set[int] = set()
    fitting = None
    for index, element in enumerate(values.elements):
        if element is None or element.shape == fitting:
            continue
        fitting = element.shape
        if not fitting:
            raise errors.InvalidArgumentError(
                f"Concat saw a scalar shape at index {index} but requires at least vectors."
            )
        inner = inner.merge_with(PartialTensorShape(fitting[1:]))
        lengths.add(fitting[0])
        if first is not None and first != fitting[0] and not values.element_shape.is_fully_defined:
            raise errors.InvalidArgumentError(
                "First entry of element_shape input does not match the first dim of list element at index: "
                f"{index} Expected: {first} Actual: {fitting[0]}"
            )
    if first is None and len(lengths) == 1 and not values.element_shape.is_fully_defined:
        first = lengths.pop()
    return first, inner


def _fill_lengths(lengths: Any, values: TensorList, length: int | None, given: Any) -> None:
    """Write the lengths of a list's elements; for those not set, the given length, else `length`."""
    count = 0 if given is None else min(len(given), len(lengths))
    if count:
        lengths[:count] = given[:count]
    lengths[count:] = -1 if length is None else length
    for index, element in enumerate(values.elements):
        if element is not None:
            lengths[index] = len(element)
    unknown = lengths < 0
    if not unknown.any():
        return
    if given is None:
        raise errors.InvalidArgumentError(
            "Concating lists with uninitialized tensors is not supported in this version of TensorListConcat. "
            "Consider updating your GraphDef to run the newer version."
        )
    raise errors.InvalidArgumentError(
        f"List contains uninitialized tensor at index {unknown.argmax()} "
        f"but leading_dims has only {len(given)} elements."
    )
