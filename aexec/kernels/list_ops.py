"""TensorList ops: lists of tensors in variants.  Next to read: `aexec/framework/tensor_list.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape, shape_text
from aexec.framework.tensor_list import TensorList

_ELEMENTS = tuple(d for d in (*dtypes.ALL, *dtypes.QUANTIZED) if d is not dtypes.resource)


def _boxed(value: TensorList) -> Any:
    tensor = np.empty((), object)
    tensor[()] = value
    return tensor


def _list(tensor: Any) -> TensorList:
    value = tensor.item() if tensor.ndim == 0 else None
    if not isinstance(value, TensorList):
        raise errors.InvalidArgumentError(
            f"Input handle is not a list. Saw: '{type(value).__name__}' in a tensor of shape {shape_text(tensor.shape)}"
        )
    return value


def _shape(tensor: Any) -> PartialTensorShape:
    """An element shape given as tensor: -1 alone is unknown rank, -1 in a vector an unknown dimension."""
    array = np.asarray(tensor)
    if array.ndim == 0:
        if array != -1:
            raise errors.InvalidArgumentError(
                f"The only valid scalar shape tensor is the fully unknown shape, got {array}"
            )
        return UNKNOWN_RANK
    return PartialTensorShape(array.tolist())


def _stack(values: Sequence[Any], dtype: dtypes.DType, shape: tuple[int, ...]) -> Any:
    out = np.empty((len(values), *shape), dtype.np)
    for index, value in enumerate(values):
        if np.shape(value) != shape:
            raise errors.InvalidArgumentError(
                f"Tried to stack elements of a list with different shapes: {shape_text(shape)} and "
                f"{shape_text(np.shape(value))}"
            )
        out[index] = value[()] if dtype.np.kind == "O" and not shape else value
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
def empty_tensor_list(c: OpKernelConstruction) -> Any:
    dtype = c.attr("element_dtype")
    return lambda shape, max_elements: _boxed(TensorList(dtype, _shape(shape), [], int(max_elements)))


@kernel("TensorListReserve", cost=0)
def tensor_list_reserve(c: OpKernelConstruction) -> Any:
    dtype = c.attr("element_dtype")

    def compute(shape: Any, count: Any) -> Any:
        if count < 0:
            raise errors.InvalidArgumentError(f"The num_elements to reserve must be a non negative number, got {count}")
        return _boxed(TensorList(dtype, _shape(shape), [None] * int(count)))

    return compute


@kernel("TensorListFromTensor", element_dtype=_ELEMENTS)
def tensor_list_from_tensor(c: OpKernelConstruction) -> Any:
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
def tensor_list_length(c: OpKernelConstruction) -> Any:
    return lambda handle: np.int32(len(_list(handle)))


@kernel("TensorListElementShape", cost=0)
def tensor_list_element_shape(c: OpKernelConstruction) -> Any:
    out = c.output_types[0].np

    def compute(handle: Any) -> Any:
        dims = _list(handle).element_shape.dims
        return np.array(-1 if dims is None else [-1 if d is None else d for d in dims], out)

    return compute


@kernel("TensorListGetItem", cost=0, element_dtype=_ELEMENTS)
def tensor_list_get_item(c: OpKernelConstruction) -> Any:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, index: Any, element_shape: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        return values.get(int(index), _shape(element_shape))

    return compute


@kernel("TensorListSetItem", cost=0)
def tensor_list_set_item(c: OpKernelConstruction) -> Any:
    dtype, grows = c.attr("element_dtype"), c.attr("resize_if_index_out_of_bounds")

    def compute(handle: Any, index: Any, value: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        position = int(index)
        elements = values.elements.copy()
        if grows and position >= len(elements):
            elements.extend([None] * (position + 1 - len(elements)))
        else:
            values.check_index(position)
        values.check_value(value)
        elements[position] = value
        return _boxed(values.with_elements(elements))

    return compute


@kernel("TensorListPushBack", cost=0)
def tensor_list_push_back(c: OpKernelConstruction) -> Any:
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
def tensor_list_pop_back(c: OpKernelConstruction) -> Any:
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
def tensor_list_resize(c: OpKernelConstruction) -> Any:
    def compute(handle: Any, size: Any) -> Any:
        values = _list(handle)
        if size < 0:
            raise errors.InvalidArgumentError(f"TensorListResize expects size to be non-negative. Got: {size}")
        elements = values.elements[: int(size)]
        return _boxed(values.with_elements(elements + [None] * (int(size) - len(elements))))

    return compute


@kernel("TensorListStack", element_dtype=_ELEMENTS, cost=0)
def tensor_list_stack(c: OpKernelConstruction) -> Any:
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
def tensor_list_gather(c: OpKernelConstruction) -> Any:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, indices: Any, element_shape: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        shape = _element_shape(values, _shape(element_shape))
        wanted = PartialTensorShape(shape)
        return _stack([values.get(i, wanted) for i in np.asarray(indices).tolist()], dtype, shape)

    return compute


@kernel("TensorListConcat", "TensorListConcatV2", element_dtype=_ELEMENTS, cost=0)
def tensor_list_concat(c: OpKernelConstruction) -> Any:
    dtype = c.attr("element_dtype")

    def compute(handle: Any, *rest: Any) -> Any:
        values = _list(handle)
        values.check_dtype(dtype)
        wanted = _shape(rest[0]) if rest else c.attr("element_shape")
        elements = []
        for position, value in enumerate(values.elements):
            if value is None:
                length = int(rest[1][position]) if rest and position < len(rest[1]) else 0
                inner = values.element_shape.merge_with(wanted).dims or (None,)
                value = np.zeros((length, *(d or 0 for d in inner[1:])), dtype.np)
            if np.ndim(value) == 0:
                raise errors.InvalidArgumentError(
                    "Concat requires elements to be at least vectors, found scalars instead."
                )
            elements.append(value)
        if not elements:
            inner = values.element_shape.merge_with(wanted).dims
            if inner is None or None in inner[1:]:
                raise errors.InvalidArgumentError(
                    "All except the first dimension must be fully defined when concating an empty tensor list."
                )
            return np.empty((0, *(d for d in inner[1:] if d is not None)), dtype.np), np.empty(0, np.int64)
        if any(value.shape[1:] != elements[0].shape[1:] for value in elements):
            raise errors.InvalidArgumentError("Tried to concat tensors with unequal shapes")
        return np.concatenate(elements), np.array([len(v) for v in elements], np.int64)

    return compute
