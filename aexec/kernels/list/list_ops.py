"""TensorList ops: lists of tensors in variants, made, changed and read element by element.

Ops that join elements are in `joining_ops.py`.  Next to read: `aexec/resources/tensor_list.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce, announce_scratch
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import giving_way
from aexec.framework.wire import variant
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.joining import ROW_NS
from aexec.kernels.common.slots import ROW_BYTES, check_slots, rows_scratch
from aexec.kernels.common.strings import values_of
from aexec.kernels.common.variants import add_tensors, boxed, map_pairs, variant_text, zeros_like_tensor
from aexec.kernels.list.list_inputs import ELEMENT_TYPES, scalar, shape_input, the_list
from aexec.resources.tensor_list import SLOT_BYTES, TensorList

__all__: list[str] = []

# Nanoseconds that an empty place in a list takes.
_SLOT_NS = 8.0
# Nanoseconds to make the zeros of an element, or the sum of two.
_ZERO_NS, _SUM_NS = 200.0, 1500.0


@kernel("EmptyTensorList", cost=0)
def empty_tensor_list(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(shape: Any, max_num_elements: Any) -> Any:
        most = scalar(max_num_elements, "max_num_elements expected to be a scalar but got shape: {}")
        return boxed(TensorList(dtype, shape_input(shape), [], most))

    return compute


@kernel("TensorListReserve", cost=0)
def tensor_list_reserve(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(shape: Any, num_elements: Any) -> Any:
        element_shape = shape_input(shape)
        count = scalar(num_elements, "The num_elements to reserve must be a tensor size 1, but got {}")
        if count < 0:
            raise errors.InvalidArgumentError(
                f"The num_elements to reserve must be a non negative number, but got {count}"
            )
        check_slots(count)
        return boxed(TensorList(dtype, element_shape, [], length=count))

    return compute


@kernel("TensorListFromTensor", element_dtype=ELEMENT_TYPES, scratch=lambda tensor, shape: rows_scratch(tensor))
def tensor_list_from_tensor(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(tensor: Any, element_shape: Any) -> Any:
        shape = _shape_of_rows(tensor, element_shape, "TensorListFromTensor")
        return boxed(TensorList(dtype, shape, [np.asarray(row, dtype.np) for row in giving_way(tensor, ROW_NS)]))

    return compute


def _shape_of_rows(tensor: Any, element_shape: Any, op: str) -> PartialTensorShape:
    """The requested element shape of a list of a tensor's rows.  Raises InvalidArgumentError unless the rows have
    it.
    """
    if np.ndim(element_shape) > 1:
        raise errors.InvalidArgumentError(
            f"{op}: element_shape must be at most rank 1 but has the shape of {shape_text(element_shape.shape)}"
        )
    shape = shape_input(element_shape)
    _check_has_rows(tensor)
    if not shape.is_compatible_with(tensor.shape[1:]):
        raise errors.InvalidArgumentError(
            f"Specified a list with shape {shape} from a tensor with shape {shape_text(tensor.shape[1:])}"
        )
    return shape


def _check_has_rows(tensor: Any) -> None:
    if np.ndim(tensor) == 0:
        raise errors.InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")


@kernel("TensorListLength", cost=0)
def tensor_list_length(c: OpKernelConstruction) -> Compute:
    return lambda handle: np.int32(len(the_list(handle)))


@kernel("TensorListElementShape", cost=0)
def tensor_list_element_shape(c: OpKernelConstruction) -> Compute:
    out = c.output_types[0].np

    def compute(handle: Any) -> Any:
        dims = the_list(handle).element_shape.dims
        return np.array(-1 if dims is None else [-1 if d is None else d for d in dims], out)

    return compute


@kernel("TensorListGetItem", cost=0, element_dtype=ELEMENT_TYPES)
def tensor_list_get_item(c: OpKernelConstruction) -> Compute:
    dtype, allocate, make = c.attr("element_dtype"), allocator(c), c.xp.zeros

    def compute(handle: Any, index: Any, element_shape: Any) -> Any:
        values = the_list(handle, dtype)
        value = values.get(scalar(index, "index must be a scalar, got shape {}"))
        if value is not None:
            return value
        shape = shape_input(element_shape).merge_with(values.element_shape)
        if not shape.is_fully_defined:
            shape = values.shape_of(values.elements, shape)
        if not shape.is_fully_defined:
            raise errors.InvalidArgumentError(
                "Trying to read an uninitialized tensor but element_shape is not fully defined: "
                f"{shape} and no list element is set."
            )
        return allocate(shape.as_tuple(), make)

    return compute


@kernel("TensorListSetItem", cost=0)
def tensor_list_set_item(c: OpKernelConstruction) -> Compute:
    dtype, grows = c.attr("element_dtype"), c.attr("resize_if_index_out_of_bounds")

    def compute(handle: Any, index: Any, value: Any) -> Any:
        values = the_list(handle, dtype)
        position = scalar(index, "index must be a scalar, got shape {}")
        if not grows or position < 0:
            values.check_index(position, "modify")
        if not values.takes(value.shape):
            raise errors.InvalidArgumentError(
                "Tried to set a tensor with incompatible shape at a list index. Item element shape: "
                f"{shape_text(value.shape)} list shape: {values.element_shape}"
            )
        elements = _room_for(values, position + 1)
        elements[position] = value
        return boxed(values.with_elements(elements, len(values)))

    return compute


def _room_for(values: TensorList, count: int) -> list[Any]:
    """A copy of the elements of a list, extended to at least `count` elements."""
    return _first_of(values, max(count, len(values.elements)))


def _first_of(values: TensorList, count: int) -> list[Any]:
    """A copy of the first `count` elements of a list."""
    check_slots(count)
    check_inline(count * _SLOT_NS)
    return values.elements_up_to(count)


@kernel("TensorListPushBack", cost=0)
def tensor_list_push_back(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, value: Any) -> Any:
        values = the_list(handle)
        if not values.takes(value.shape):
            raise errors.InvalidArgumentError(_does_not_fit("list", value.shape, values))
        values.check_dtype(dtype)
        count = len(values)
        if values.max_elements != -1 and count >= values.max_elements:
            raise errors.InvalidArgumentError(
                f"Tried to push item into a full list list size: {count} max_num_elements: {values.max_elements}"
            )
        elements = _room_for(values, count)
        elements.append(value)
        return boxed(values.with_elements(elements))

    return compute


def _does_not_fit(where: str, shape: tuple[int, ...], values: TensorList) -> str:
    return (
        f"Tried to append a tensor with incompatible shape to a {where}. "
        f"Op element shape: {shape_text(shape)} list shape: {values.element_shape}"
    )


@kernel("TensorListPopBack", cost=0, element_dtype=ELEMENT_TYPES)
def tensor_list_pop_back(c: OpKernelConstruction) -> Compute:
    dtype, allocate, make = c.attr("element_dtype"), allocator(c, 1), c.xp.zeros

    def compute(handle: Any, element_shape: Any) -> Any:
        values = the_list(handle, dtype)
        last = len(values) - 1
        if last < 0:
            raise errors.InvalidArgumentError("Trying to pop from an empty list.")
        value = values.get(last)
        if value is None:
            shape = shape_input(element_shape).merge_with(values.element_shape)
            if not shape.is_fully_defined:
                raise errors.InvalidArgumentError(
                    f"Trying to read an uninitialized tensor but element_shape is not fully defined.{shape}"
                )
            value = allocate(shape.as_tuple(), make)
        return boxed(values.with_elements(_first_of(values, min(last, len(values.elements))), last)), value

    return compute


@kernel("TensorListResize", cost=0)
def tensor_list_resize(c: OpKernelConstruction) -> Compute:
    def compute(handle: Any, size: Any) -> Any:
        values, count = the_list(handle), scalar(size, "size must be a scalar, got shape {}")
        if count < 0:
            # TensorFlow's words, which name another op.
            raise errors.InvalidArgumentError(f"TensorListSlice expects size to be non-negative. Got: {count}")
        check_slots(count)
        return boxed(values.with_elements(_first_of(values, min(count, len(values.elements))), count))

    return compute


@kernel("TensorListScatter", "TensorListScatterV2", element_dtype=ELEMENT_TYPES)
def tensor_list_scatter(c: OpKernelConstruction) -> Compute:
    """Return a list with rows at given positions; the second version extends it to at least `num_elements`."""
    dtype = c.attr("element_dtype")

    def compute(tensor: Any, indices: Any, element_shape: Any, num_elements: Any = -1) -> Any:
        room = scalar(num_elements, "num_elements must be a scalar")
        if room < -1:
            raise errors.InvalidArgumentError(f"TensorListScatter expects num_elements >= -1, found: {room}")
        shape = _shape_of_rows(tensor, element_shape, "TensorListScatter")
        if np.size(indices) != len(tensor):
            raise errors.InvalidArgumentError(
                f"Invalid number of rows in input tensor. Expected: {np.size(indices)} Actual: {len(tensor)}"
            )
        positions: list[int] = values_of(indices)
        _check_not_negative(positions)
        if room != -1 and positions and max(positions) >= room:
            first = next(position for position in positions if position >= room)
            raise errors.InvalidArgumentError(
                f"TensorListScatter: Trying to scatter at index {first} in list with size {room}"
            )
        check_slots(room)
        empty = TensorList(dtype, shape, [], length=max(room, 0))
        return boxed(_with_rows(empty, positions, tensor, dtype))

    return compute


@kernel("TensorListScatterIntoExistingList", element_dtype=ELEMENT_TYPES)
def tensor_list_scatter_into_existing_list(c: OpKernelConstruction) -> Compute:
    """Return the list with rows at given positions, extended if necessary."""
    dtype = c.attr("element_dtype")

    def compute(handle: Any, tensor: Any, indices: Any) -> Any:
        values = the_list(handle)
        if values.dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"Invalid data types; input tensor type: {dtype} list element_type: {values.dtype}"
            )
        _check_has_rows(tensor)
        if np.ndim(indices) != 1:
            raise errors.InvalidArgumentError(
                f"Expected indices to be a vector, but received shape: {shape_text(np.shape(indices))}"
            )
        if len(indices) != len(tensor):
            raise errors.InvalidArgumentError(
                f"Expected len(indices) == tensor.shape[0], but saw: {len(indices)} vs. {len(tensor)}"
            )
        positions: list[int] = values_of(indices)
        _check_not_negative(positions)
        if positions and not values.takes(tensor.shape[1:]):
            raise errors.InvalidArgumentError(_does_not_fit("list", tensor.shape[1:], values))
        return boxed(_with_rows(values, positions, tensor, dtype))

    return compute


def _check_not_negative(positions: list[int]) -> None:
    if positions and min(positions) < 0:
        raise errors.InvalidArgumentError("Indices in TensorListScatter must all be non-negative.")


def _with_rows(values: TensorList, positions: list[int], tensor: Any, dtype: dtypes.DType) -> TensorList:
    """A list with the rows of a tensor at these positions, extended if necessary."""
    elements = _room_for(values, max(positions, default=-1) + 1)
    announce_scratch(ROW_BYTES * len(set(positions)))
    for row, position in zip(giving_way(tensor, ROW_NS), positions, strict=True):
        elements[position] = np.asarray(row, dtype.np)
    return values.with_elements(elements, len(values))


@kernel("TensorListSplit", element_dtype=ELEMENT_TYPES, scratch=lambda tensor, shape, lengths: rows_scratch(lengths))
def tensor_list_split(c: OpKernelConstruction) -> Compute:
    """Return a list of slices of a tensor along its first dimension, of given lengths."""
    dtype = c.attr("element_dtype")

    def compute(tensor: Any, element_shape: Any, lengths: Any) -> Any:
        shape = _shape_of_parts(tensor, element_shape)
        if np.ndim(lengths) != 1:
            raise errors.InvalidArgumentError(
                f"Expected lengths to be a vector, received shape: {shape_text(np.shape(lengths))}"
            )
        parts, start = [], 0
        for length in giving_way(lengths.tolist(), ROW_NS):
            if length < 0:
                raise errors.InvalidArgumentError(f"Invalid value in lengths: {length}")
            end = start + length
            if end > len(tensor):
                raise errors.InvalidArgumentError(
                    f"Attempting to slice [{start}, {end}] from tensor with length {len(tensor)}"
                )
            parts.append(tensor[start:end])
            start = end
        if start < len(tensor):
            raise errors.InvalidArgumentError(
                f"Unused values in tensor. Length of tensor: {len(tensor)} Values used: {start}"
            )
        return boxed(TensorList(dtype, shape, parts))

    return compute


def _shape_of_parts(tensor: Any, element_shape: Any) -> PartialTensorShape:
    """The requested element shape of a list of parts of a tensor.

    Its first dimension is ignored: TensorFlow's gradients set it to that of the whole tensor, or of one part.
    """
    shape = shape_input(element_shape)
    if shape.rank == 0:
        raise errors.InvalidArgumentError(
            f"TensorListSplit requires element_shape to be at least of rank 1, but saw: {shape}"
        )
    _check_has_rows(tensor)
    if shape.dims is not None and not PartialTensorShape(shape.dims[1:]).is_compatible_with(tensor.shape[1:]):
        raise errors.InvalidArgumentError(
            f"tensor shape {shape_text(tensor.shape)} is not compatible with element_shape {shape}"
        )
    return shape


@kernel("TensorListConcatLists", cost=0)
def tensor_list_concat_lists(c: OpKernelConstruction) -> Compute:
    """Concatenates pairs of lists, element by element of two tensors of lists."""
    dtype = c.attr("element_dtype")

    def joined(a: Any, b: Any, where: str) -> TensorList:
        first, second = (_in_tensor(values, name, where, dtype) for name, values in (("input_a", a), ("input_b", b)))
        if first.element_shape != second.element_shape:
            raise errors.InvalidArgumentError(
                f"input_a and input_b TensorList element shapes are not identical{where}.  "
                f"Saw {first.element_shape} vs. {second.element_shape}"
            )
        count = len(first) + len(second.elements)
        check_inline(count * _SLOT_NS)
        elements = _room_for(first, len(first))
        announce(SLOT_BYTES * count)
        elements += second.elements
        return first.with_elements(elements, len(first) + len(second))

    def compute(a: Any, b: Any) -> Any:
        if np.shape(a) != np.shape(b):
            raise errors.InvalidArgumentError(
                f"input_a and input_b must have the same shape: {shape_text(np.shape(a))} vs. {shape_text(np.shape(b))}"
            )
        check_slots(sum(len(values) for pair in (a, b) for values in pair.ravel() if isinstance(values, TensorList)))
        positions = iter(range(a.size))
        return map_pairs(lambda x, y: joined(x, y, f" at index {next(positions)}"), a, b)

    return compute


def _in_tensor(values: Any, name: str, where: str, dtype: dtypes.DType) -> TensorList:
    if not isinstance(values, TensorList):
        raise errors.InvalidArgumentError(f"{name} is not a TensorList{where}.  Saw: '{variant_text(values)}'")
    values.check_dtype(dtype)
    return values


@kernel("TensorListPushBackBatch", element_dtype=ELEMENT_TYPES, scratch=lambda lists, rows: rows_scratch(lists))
def tensor_list_push_back_batch(c: OpKernelConstruction) -> Compute:
    """Appends row i of a tensor to list i of a vector of lists."""
    dtype = c.attr("element_dtype")

    def pushed(index: int, handle: Any, row: Any) -> TensorList:
        if not isinstance(handle, TensorList):
            raise errors.InvalidArgumentError(
                f"Input handle at index {index} is not a list. Saw: '{variant_text(handle)}'"
            )
        if not handle.takes(row.shape):
            raise errors.InvalidArgumentError(_does_not_fit(f"list at index {index}", row.shape, handle))
        if handle.dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"Invalid data type at index {index}; op elements {dtype} but list elements {handle.dtype}"
            )
        return handle.with_elements([*_room_for(handle, len(handle)), row])

    def compute(handles: Any, tensor: Any) -> Any:
        if np.ndim(tensor) == 0:
            raise errors.InvalidArgumentError("Expected tensor to be at least a vector, but saw shape: []")
        if handles.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Expected input_handles to be a vector, but saw shape: {shape_text(handles.shape)}"
            )
        if len(tensor) != len(handles):
            raise errors.InvalidArgumentError(
                f"Expected tensor.shape[0] == input_handles.size, but saw {len(tensor)} vs. {len(handles)}"
            )
        out = np.empty(len(handles), object)
        for index, (handle, row) in enumerate(zip(handles, giving_way(tensor, ROW_NS), strict=True)):
            out[index] = pushed(index, handle, np.asarray(row, dtype.np))
        return out

    return compute


# ZerosLike and AddN of lists in variants


def _zeros_like(values: TensorList) -> TensorList:
    """Elements of one shape share one array, since shared arrays are never written to."""
    made: dict[tuple[int, ...], Any] = {}

    def zeros(element: Any) -> Any:
        if element is None or values.dtype is dtypes.variant:
            return None if element is None else zeros_like_tensor(element)
        found = made.get(element.shape)
        if found is None:
            found = made[element.shape] = zeros_like_tensor(element)
        return found

    check_inline(len(values.elements) * _ZERO_NS)
    announce(SLOT_BYTES * len(values.elements))
    return values.with_elements([zeros(element) for element in giving_way(values.elements, _ZERO_NS)], len(values))


def _add(first: TensorList, second: TensorList) -> TensorList:
    """The sums of the elements; an element that is not set in one list is the other's."""
    if first.dtype is not second.dtype:
        raise errors.InvalidArgumentError(
            "Trying to add two lists of tensors of different dtypes. "
            f"One is {first.dtype} and the other is {second.dtype}"
        )
    if not first.element_shape.is_compatible_with(second.element_shape):
        raise errors.InvalidArgumentError(
            "Trying to add two lists of tensors with incompatible element shapes. "
            f"One is {first.element_shape} and the other is {second.element_shape}"
        )
    if len(first) != len(second):
        raise errors.InvalidArgumentError(
            "Trying to add two lists of tensors with different lengths. "
            f"One is {len(first)} and the other is {len(second)}"
        )
    count = max(len(first.elements), len(second.elements))
    check_inline(count * _SUM_NS)
    held = sum(element.nbytes for element in giving_way(first.elements, _SLOT_NS) if element is not None)
    announce(ROW_BYTES * count + held)
    pairs = zip(first.elements_up_to(count), second.elements_up_to(count), strict=True)
    total = first.with_elements([_sum(a, b) for a, b in giving_way(pairs, _SUM_NS)], len(first))
    total.element_shape = first.element_shape.merge_with(second.element_shape)
    return total


def _sum(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return add_tensors(a, b)


variant.register_unary_op("ZEROS_LIKE", "CPU", TensorList, _zeros_like)
variant.register_binary_op("ADD", "CPU", TensorList, _add)
