"""TensorList ops: lists of tensors in variants.  Next to read: `aexec/resources/tensor_list.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors, variant
from aexec.framework.allocator import announce_scratch
from aexec.framework.inline_call import check_inline
from aexec.framework.kernel_registry import kernel
from aexec.framework.loop_budget import COPY_NS
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape, check_max_rank, shape_text
from aexec.kernels.common.slots import ROW_BYTES, check_slots, rows_scratch
from aexec.resources.tensor_list import TensorList

# Nanoseconds that an empty place in a list takes, and joining an element besides its bytes.
_SLOT_NS, _ROW_NS = 8.0, 150.0
_ELEMENTS = tuple(d for d in (*dtypes.ALL, *dtypes.QUANTIZED) if d is not dtypes.resource)


def _boxed(value: TensorList) -> Any:
    tensor = np.empty((), object)
    tensor[()] = value
    return tensor


def _list(tensor: Any) -> TensorList:
    if tensor.ndim:
        raise errors.InvalidArgumentError(
            f"Input list must be a scalar. Saw: a tensor of shape {shape_text(tensor.shape)}"
        )
    return _as_list(tensor[()])


def _as_list(value: Any) -> TensorList:
    if not isinstance(value, TensorList):
        raise errors.InvalidArgumentError(f"Input handle is not a list. Saw: '{type(value).__name__}'")
    return value


def _shape(tensor: Any) -> PartialTensorShape:
    """An element shape given as tensor: -1 alone is unknown rank, -1 in a vector an unknown dimension."""
    array = np.asarray(tensor)
    if array.ndim > 1:
        raise errors.InvalidArgumentError(f"Expected the shape of elements as a vector, got {shape_text(array.shape)}")
    if array.ndim == 0:
        if array != -1:
            raise errors.InvalidArgumentError(
                f"The only valid scalar shape tensor is the fully unknown shape, got {array}"
            )
        return UNKNOWN_RANK
    check_max_rank(array.size)
    return PartialTensorShape(array.tolist())


def _integer(tensor: Any, name: str) -> int:
    if np.ndim(tensor):
        raise errors.InvalidArgumentError(f"{name} must be a scalar, got shape {shape_text(np.shape(tensor))}")
    return int(tensor)


def _stack(values: Sequence[Any], dtype: dtypes.DType, shape: tuple[int, ...]) -> Any:
    for value in values:
        if value.shape != shape:
            raise errors.InvalidArgumentError(
                f"Tried to stack elements of a list with different shapes: {shape_text(shape)} and "
                f"{shape_text(value.shape)}"
            )
    check_inline(len(values) * (_ROW_NS + prod(shape) * dtype.np.itemsize * COPY_NS))
    if shape and values:
        return np.concatenate(values).reshape(len(values), *shape)
    out = np.empty((len(values), *shape), dtype.np)
    for index, value in enumerate(values):
        out[index] = value[()] if dtype.np.kind == "O" else value
    return out


def _element_shape(values: TensorList, wanted: PartialTensorShape) -> tuple[int, ...]:
    """The concrete shape of the elements of a list that is to be stacked."""
    shape = values.element_shape.merge_with(wanted)
    for value in values.elements:
        if shape.is_fully_defined:
            break
        if value is not None:
            shape = shape.merge_with(PartialTensorShape(np.shape(value)))
    if not shape.is_fully_defined:
        raise errors.InvalidArgumentError(
            f"Tried to stack elements of a{'n empty' if not len(values) else ''} list with non-fully-defined "
            f"element_shape: {shape}"
        )
    return shape.as_tuple()


@kernel("EmptyTensorList", cost=0)
def empty_tensor_list(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")
    return lambda shape, count: _boxed(TensorList(dtype, _shape(shape), [], _integer(count, "max_num_elements")))


@kernel("TensorListReserve", cost=0)
def tensor_list_reserve(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(shape: Any, num_elements: Any) -> Any:
        count = _integer(num_elements, "num_elements")
        if count < 0:
            raise errors.InvalidArgumentError(f"The num_elements to reserve must be a non negative number, got {count}")
        check_slots(count)
        check_inline(count * _SLOT_NS)
        return _boxed(TensorList(dtype, _shape(shape), [None] * count))

    return compute


@kernel("TensorListFromTensor", element_dtype=_ELEMENTS, scratch=lambda tensor, shape: rows_scratch(tensor))
def tensor_list_from_tensor(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(tensor: Any, element_shape: Any) -> Any:
        if np.ndim(tensor) == 0:
            raise errors.InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")
        shape = _shape(element_shape)
        if not shape.is_compatible_with(tensor.shape[1:]):
            raise errors.InvalidArgumentError(
                f"Specified a list with shape {shape} from a tensor with shape {shape_text(tensor.shape[1:])}"
            )
        return _boxed(TensorList(dtype, shape, [np.asarray(row, dtype.np) for row in tensor]))

    return compute


@kernel("TensorListLength", cost=0)
def tensor_list_length(c: OpKernelConstruction) -> Compute:
    return lambda handle: np.int32(len(_list(handle)))


@kernel("TensorListElementShape", cost=0)
def tensor_list_element_shape(c: OpKernelConstruction) -> Compute:
    out = c.output_types[0].np

    def compute(handle: Any) -> Any:
        dims = _list(handle).element_shape.dims
        return np.array(-1 if dims is None else [-1 if d is None else d for d in dims], out)

    return compute


@kernel("TensorListGetItem", cost=0, element_dtype=_ELEMENTS)
def tensor_list_get_item(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, index: Any, element_shape: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        position = _integer(index, "index")
        values.check_index(position)
        value = values.elements[position]
        return values.zeros(_shape(element_shape)) if value is None else value

    return compute


@kernel("TensorListSetItem", cost=0)
def tensor_list_set_item(c: OpKernelConstruction) -> Compute:
    dtype, grows = c.attr("element_dtype"), c.attr("resize_if_index_out_of_bounds")

    def compute(handle: Any, index: Any, value: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        position = _integer(index, "index")
        elements = values.elements.copy()
        if grows and position >= len(elements):
            check_slots(position)
            elements.extend([None] * (position + 1 - len(elements)))
        else:
            values.check_index(position)
        values.check_value(value)
        elements[position] = value
        return _boxed(values.with_elements(elements))

    return compute


@kernel("TensorListPushBack", cost=0)
def tensor_list_push_back(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, value: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        values.check_value(value)
        if values.max_elements != -1 and len(values) >= values.max_elements:
            raise errors.InvalidArgumentError(
                f"Tried to push item into a full list list size: {len(values)} max_num_elements: {values.max_elements}"
            )
        return _boxed(values.with_elements([*values.elements, value]))

    return compute


@kernel("TensorListPopBack", cost=0, element_dtype=_ELEMENTS)
def tensor_list_pop_back(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, element_shape: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        if not len(values):
            raise errors.InvalidArgumentError("Trying to pop from an empty list.")
        last = values.get(len(values) - 1, _shape(element_shape))
        return _boxed(values.with_elements(values.elements[:-1])), last

    return compute


@kernel("TensorListResize", cost=0)
def tensor_list_resize(c: OpKernelConstruction) -> Compute:
    def compute(handle: Any, size: Any) -> Any:
        values, count = _list(handle), _integer(size, "size")
        if count < 0:
            raise errors.InvalidArgumentError(f"TensorListResize expects size to be non-negative. Got: {count}")
        check_slots(count)
        check_inline(count * _SLOT_NS)
        elements = values.elements[:count]
        return _boxed(values.with_elements(elements + [None] * (count - len(elements))))

    return compute


@kernel("TensorListStack", element_dtype=_ELEMENTS, cost=0)
def tensor_list_stack(c: OpKernelConstruction) -> Compute:
    dtype, count = c.attr("element_dtype"), c.attr("num_elements")

    def compute(handle: Any, element_shape: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        if count not in (-1, len(values)):
            raise errors.InvalidArgumentError(
                f"Operation expected a list with {count} elements but got a list with {len(values)} elements."
            )
        shape = _element_shape(values, _shape(element_shape))
        zeros = None
        elements = []
        for value in values.elements:
            if value is None:
                zeros = values.zeros(PartialTensorShape(shape)) if zeros is None else zeros
                value = zeros
            elements.append(value)
        return _stack(elements, dtype, shape)

    return compute


@kernel("TensorListGather", element_dtype=_ELEMENTS, cost=0)
def tensor_list_gather(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, indices: Any, element_shape: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        shape = _element_shape(values, _shape(element_shape))
        positions = np.asarray(indices).ravel()
        check_inline(positions.size * (_ROW_NS + prod(shape) * dtype.np.itemsize * COPY_NS))
        # Each element is looked up once: what was never set is made then.
        numbers: dict[int, int] = {}
        places = np.fromiter((numbers.setdefault(i, len(numbers)) for i in positions.tolist()), np.intp, positions.size)
        return _stack([values.get(i, PartialTensorShape(shape)) for i in numbers], dtype, shape)[places]

    return compute


@kernel("TensorListConcat", "TensorListConcatV2", element_dtype=_ELEMENTS, cost=0)
def tensor_list_concat(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, *rest: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        wanted = _shape(rest[0]) if rest else c.attr("element_shape")
        if rest and rest[1].ndim != 1:
            raise errors.InvalidArgumentError(f"leading_dims must be a vector, got shape {shape_text(rest[1].shape)}")
        elements = []
        for position, value in enumerate(values.elements):
            if value is None:
                length = int(rest[1][position]) if rest and position < len(rest[1]) else 0
                if length < 0:
                    raise errors.InvalidArgumentError(f"leading_dims must be >= 0, got {length}")
                inner = values.element_shape.merge_with(wanted).dims or (None,)
                value = np.zeros((length, *(d or 0 for d in inner[1:])), dtype.np)
            if np.ndim(value) == 0:
                raise errors.InvalidArgumentError(
                    "Concat requires elements to be at least vectors, found scalars instead."
                )
            elements.append(value)
        if not elements:
            dims = values.element_shape.merge_with(wanted).dims
            if dims is None or None in dims[1:]:
                raise errors.InvalidArgumentError(
                    "All except the first dimension must be fully defined when concating an empty tensor list."
                )
            return np.empty((0, *(d for d in dims[1:] if d is not None)), dtype.np), np.empty(0, np.int64)
        if any(value.shape[1:] != elements[0].shape[1:] for value in elements):
            raise errors.InvalidArgumentError("Tried to concat tensors with unequal shapes")
        check_inline(sum(_ROW_NS + value.nbytes * COPY_NS for value in elements))
        return np.concatenate(elements), np.array([len(v) for v in elements], np.int64)

    return compute


@kernel("TensorListScatter", "TensorListScatterV2", element_dtype=_ELEMENTS)
def tensor_list_scatter(c: OpKernelConstruction) -> Compute:
    """A list of rows at given places; of the second version with room for `num_elements` at least."""
    dtype = c.attr("element_dtype")

    def compute(tensor: Any, indices: Any, element_shape: Any, num_elements: Any = -1) -> Any:
        room = _integer(num_elements, "num_elements")
        if room < -1:
            raise errors.InvalidArgumentError(f"TensorListScatter expects num_elements >= -1, found: {room}")
        shape = _shape(element_shape)
        positions = _positions(tensor, indices)
        if not shape.is_compatible_with(np.shape(tensor)[1:]):
            raise errors.InvalidArgumentError(
                f"Specified a list with shape {shape} from a tensor with shape {shape_text(np.shape(tensor)[1:])}"
            )
        if room != -1 and positions and max(positions) >= room:
            raise errors.InvalidArgumentError(
                f"TensorListScatter: Trying to scatter at index {max(positions)} in list with size {room}"
            )
        count = max(max(positions, default=-1) + 1, room)
        check_slots(count)
        check_inline(count * _SLOT_NS)
        return _boxed(TensorList(dtype, shape, _with_rows([None] * count, positions, tensor, dtype)))

    return compute


@kernel("TensorListScatterIntoExistingList", element_dtype=_ELEMENTS)
def tensor_list_scatter_into_existing_list(c: OpKernelConstruction) -> Compute:
    """The list with rows at given places, longer if need be."""
    dtype = c.attr("element_dtype")

    def compute(handle: Any, tensor: Any, indices: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        positions = _positions(tensor, indices)
        if positions:
            values.check_value(tensor[0, ...])  # an array, also of a string
        count = max(max(positions, default=-1) + 1, len(values))
        check_slots(count)
        check_inline(count * _SLOT_NS)
        elements = values.elements + [None] * (count - len(values))
        return _boxed(values.with_elements(_with_rows(elements, positions, tensor, dtype)))

    return compute


def _positions(tensor: Any, indices: Any) -> list[int]:
    """Where the rows of a tensor go."""
    if np.ndim(tensor) == 0:
        raise errors.InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")
    if np.ndim(indices) != 1:
        raise errors.InvalidArgumentError(
            f"Expected indices to be a vector, but received shape: {shape_text(np.shape(indices))}"
        )
    if len(indices) != len(tensor):
        raise errors.InvalidArgumentError(
            f"Specified tensor must have as many elements as there are indices: {len(tensor)} vs. {len(indices)}"
        )
    positions: list[int] = indices.tolist()
    if positions and min(positions) < 0:
        raise errors.InvalidArgumentError("Indices in TensorListScatter must all be non-negative.")
    return positions


def _with_rows(elements: list[Any], positions: list[int], tensor: Any, dtype: dtypes.DType) -> list[Any]:
    announce_scratch(ROW_BYTES * len(set(positions)))
    for row, position in zip(tensor, positions, strict=True):
        elements[position] = np.asarray(row, dtype.np)
    return elements


@kernel("TensorListSplit", element_dtype=_ELEMENTS, scratch=lambda tensor, shape, lengths: rows_scratch(lengths))
def tensor_list_split(c: OpKernelConstruction) -> Compute:
    """A list of slices of a tensor along its first dimension, of given lengths."""
    dtype = c.attr("element_dtype")

    def compute(tensor: Any, element_shape: Any, lengths: Any) -> Any:
        if np.ndim(tensor) == 0:
            raise errors.InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")
        if np.ndim(lengths) != 1:
            raise errors.InvalidArgumentError(
                f"Expected lengths to be a vector, received shape: {shape_text(np.shape(lengths))}"
            )
        sizes: list[int] = lengths.tolist()
        if sizes and min(sizes) < 0:
            raise errors.InvalidArgumentError(f"Invalid value in lengths: {min(sizes)}")
        if sum(sizes) > len(tensor):
            raise errors.InvalidArgumentError(
                f"Attempting to slice [0, {sum(sizes)}] from tensor with length {len(tensor)}"
            )
        if sum(sizes) < len(tensor):
            raise errors.InvalidArgumentError(
                f"Unused values in tensor. Length of tensor: {len(tensor)} Values used: {sum(sizes)}"
            )
        ends = np.cumsum(sizes).tolist()
        parts = [tensor[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        values = TensorList(dtype, _shape(element_shape), parts)
        for part in parts:
            values.check_value(part)
        return _boxed(values)

    return compute


@kernel("TensorListConcatLists", cost=0)
def tensor_list_concat_lists(c: OpKernelConstruction) -> Compute:
    """Pairs of lists, element by element of two tensors of them, appended to one another."""
    dtype = c.attr("element_dtype")

    def joined(a: Any, b: Any) -> TensorList:
        first, second = _as_list(a), _as_list(b)
        for values in (first, second):
            values.check_dtype(dtype)
        check_slots(len(first) + len(second))
        both = first.with_elements(first.elements + second.elements)
        both.element_shape = first.element_shape.merge_with(second.element_shape)
        return both

    def compute(a: Any, b: Any) -> Any:
        if np.shape(a) != np.shape(b):
            raise errors.InvalidArgumentError(
                f"input_a and input_b must have the same shape: {shape_text(np.shape(a))} vs. {shape_text(np.shape(b))}"
            )
        return _map(joined, a, b)

    return compute


@kernel("TensorListPushBackBatch", element_dtype=_ELEMENTS, scratch=lambda lists, rows: rows_scratch(lists))
def tensor_list_push_back_batch(c: OpKernelConstruction) -> Compute:
    """Row i of a tensor appended to list i of a vector of lists."""
    dtype = c.attr("element_dtype")

    def compute(handles: Any, tensor: Any) -> Any:
        if np.ndim(tensor) < handles.ndim or tensor.shape[: handles.ndim] != handles.shape:
            raise errors.InvalidArgumentError(
                f"Expected tensor.shape[:{handles.ndim}] to be {shape_text(handles.shape)}, "
                f"but tensor's shape is {shape_text(np.shape(tensor))}"
            )
        rows = np.empty(handles.size, object)
        for position, row in enumerate(tensor.reshape(handles.size, *tensor.shape[handles.ndim :])):
            rows[position] = np.asarray(row, dtype.np)

        def pushed(handle: Any, row: Any) -> TensorList:
            values = _as_list(handle)
            values.check_dtype(dtype)
            values.check_value(row)
            return values.with_elements([*values.elements, row])

        return _map(pushed, handles, rows.reshape(handles.shape))

    return compute


def _map(function: Any, a: Any, b: Any) -> Any:
    """`function` of each pair of elements of two object arrays of one shape."""
    out = np.empty(a.size, object)
    for position, pair in enumerate(zip(a.ravel(), b.ravel(), strict=True)):
        out[position] = function(*pair)
    return out.reshape(a.shape)


# Lists as elements of variants: what ZerosLike and AddN make of them


def _zeros_like(values: TensorList) -> TensorList:
    zeros = [None if e is None else values.zeros(PartialTensorShape(np.shape(e))) for e in values.elements]
    return values.with_elements(zeros)


def _add(first: TensorList, second: TensorList) -> TensorList:
    if first.dtype is not second.dtype:
        raise errors.InvalidArgumentError(
            "Trying to add two lists of tensors of different dtypes. "
            f"One is {first.dtype} and the other is {second.dtype}"
        )
    if len(first) != len(second):
        raise errors.InvalidArgumentError(
            "Trying to add two lists of tensors with different lengths. "
            f"One is {len(first)} and the other is {len(second)}"
        )
    total = first.with_elements([_sum(a, b) for a, b in zip(first.elements, second.elements, strict=True)])
    total.element_shape = first.element_shape.merge_with(second.element_shape)
    return total


def _sum(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    if np.shape(a) != np.shape(b):
        raise errors.InvalidArgumentError(
            "Trying to add two tensors with incompatible element shapes. "
            f"One is {shape_text(np.shape(a))} and the other is {shape_text(np.shape(b))}"
        )
    if a.dtype == object:
        return _map(variant.add, a, b)
    return np.add(a, b)


variant.register_unary_op("ZEROS_LIKE", "CPU", TensorList, _zeros_like)
variant.register_binary_op("ADD", "CPU", TensorList, _add)
