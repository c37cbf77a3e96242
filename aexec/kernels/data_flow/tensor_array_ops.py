"""TensorArray ops: the handle finds the array in the step's container, `flow` only orders operations.

The three generations differ in the form of the handle (see `aexec/kernels/common/handles.py`), and the first one packs
and unpacks whole arrays where later ones gather and scatter.  The operation of an op on its array is a `Core`, which
`device_tensor_array_ops.py` also uses, for arrays whose elements are in a device's memory.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged_list
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import MAX_RANK, PartialTensorShape, shape_text
from aexec.framework.state.resource_manager import is_fixed_handle
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.handles import resource_finder, step_handle
from aexec.kernels.common.joining import ROW_NS, joined, stacked
from aexec.kernels.common.slots import ROW_BYTES, check_slots, rows_scratch
from aexec.kernels.common.strings import values_of
from aexec.resources.tensor_array import TensorArray

__all__ = ["CORES", "Core", "finder", "tensor_array", "tensor_array_grad"]

# From the construction, makes a function of the array and the inputs after its handle.
Core = Callable[[OpKernelConstruction], Compute]

_WRITABLE = dtypes.ALL
_GATHERABLE = tuple(d for d in (*dtypes.ALL, dtypes.qint8, dtypes.quint8, dtypes.qint32) if d is not dtypes.resource)
_CONCATENABLE = tuple(d for d in _GATHERABLE if d is not dtypes.variant)
_FLOW = np.float32(0)
# Bytes of an index as a Python number in a list; the memory of up to `_FEW` indices is not announced.
_INDEX_BYTES, _FEW = 40, 1 << 12
# Adding takes this many times as long as copying.
_ADDED = 2
_numbers = itertools.count()


def _names(operation: str) -> tuple[str, ...]:
    """The names of an op in its three generations."""
    return tuple(f"TensorArray{operation}{generation}" for generation in ("", "V2", "V3"))


def finder() -> Callable[[OpKernelContext, Any], TensorArray]:
    """A function that finds the array of a handle; each kernel has its own."""
    return resource_finder(TensorArray)


def _publish(c: OpKernelConstruction, context: OpKernelContext, array: TensorArray) -> Any:
    context.resources.create(context.step_container, array.name, array)
    return _handle(c, context, array.name)


def _handle(c: OpKernelConstruction, context: OpKernelContext, name: str) -> Any:
    return step_handle(c, context, name, TensorArray.__name__)


def _vector(name: str, tensor: Any, received: str = "but received") -> Sequence[int]:
    if np.ndim(tensor) != 1:
        raise errors.InvalidArgumentError(
            f"Expected {name} to be a vector, {received} shape: {shape_text(np.shape(tensor))}"
        )
    if tensor.size <= _FEW:
        positions: list[int] = tensor.tolist()
        return positions
    announce_scratch(_INDEX_BYTES * tensor.size)
    return values_of(tensor)


def _scalar(name: str, tensor: Any) -> int:
    if tensor.ndim:
        raise errors.InvalidArgumentError(
            f"TensorArray {name} must be scalar, but had shape: {shape_text(np.shape(tensor))}"
        )
    return int(tensor)


def _check_dtype(array: TensorArray, dtype: dtypes.DType, doing: str = "requested") -> None:
    if array.dtype is not dtype:
        raise errors.InvalidArgumentError(f"TensorArray dtype is {array.dtype} but Op {doing} dtype {dtype}.")


_WRITES = "is trying to write"


@kernel(*_names(""), cost=0)
def tensor_array(c: OpKernelConstruction) -> Compute:
    """Makes an array whose elements are arrays of `c.xp`."""
    dtype, shape = c.attr("dtype"), c.attr("element_shape")
    names = ("dynamic_size", "clear_after_read", "identical_element_shapes")
    options = {name: c.attr(name) for name in names if name in c.attrs}
    outputs = _outputs(c)
    base, xp = c.text("tensor_array_name") or c.name, c.xp
    c.need_context()

    def compute(context: OpKernelContext, size: Any) -> Any:
        count = _scalar("size", size)
        check_slots(count)
        array = TensorArray(f"{base}_{next(_numbers)}", dtype, count, shape, xp=xp, **options)
        return outputs(_publish(c, context, array), _FLOW)

    return compute


def _outputs(c: OpKernelConstruction) -> Callable[[Any, Any], Any]:
    """The function from handle and flow to the outputs of a node: only the third generation gives the flow."""
    return (lambda handle, flow: (handle, flow)) if len(c.output_types) > 1 else lambda handle, flow: handle


# Nanoseconds for looking at the shape of an element.
_SHAPE_NS = 50.0


@kernel(*_names("Grad"), "TensorArrayGradWithShape", cost=0)
def _tensor_array_grad(c: OpKernelConstruction) -> Compute:
    return tensor_array_grad(c)


def tensor_array_grad(c: OpKernelConstruction, *, at_once: bool = True) -> Compute:
    """Finds or makes the array of gradients, which is as long as the forward array is then; that can no longer grow.

    Args:
        at_once: if False, the length is read when gradients are first used.
    """
    source, with_shape = c.text("source"), c.op.endswith("WithShape")
    outputs, find = _outputs(c), finder()
    c.need_context()
    # The last handle, and the array and the handle of its gradients: a loop asks in each iteration.  One tuple, as
    # threads may share the kernel.
    last: tuple[Any, Callable[[], TensorArray | None], Any] = (None, _nothing, None)

    def compute(context: OpKernelContext, handle_tensor: Any, flow: Any, *prepend: Any) -> Any:
        nonlocal last
        tensor, reference, known = last
        if tensor is handle_tensor and reference() is not None:
            return outputs(known, flow)
        found, made = array_of(context, handle_tensor, *prepend)
        if is_fixed_handle(handle_tensor) and is_fixed_handle(made):
            last = handle_tensor, weakref.ref(found), made
        return outputs(made, flow)

    def array_of(context: OpKernelContext, handle_tensor: Any, *prepend: Any) -> tuple[TensorArray, Any]:
        forward = find(context, handle_tensor)
        name = f"{forward.name}@{source}"
        found = context.resources.find(context.step_container, name, TensorArray)
        if found is not None:
            return found, _handle(c, context, name)
        if with_shape and (prepend[0].ndim != 1 or prepend[0].size > MAX_RANK):
            raise errors.InvalidArgumentError(
                f"shape_to_prepend must be a vector of at most {MAX_RANK} sizes, got {shape_text(prepend[0].shape)}"
            )
        before = prepend[0].tolist() if with_shape else None
        found = TensorArray.of_gradients(name, forward, before)
        if at_once:
            check_inline(len(forward.elements) * _SHAPE_NS)
            found.begin()
        return found, _publish(c, context, found)

    return compute


def _nothing() -> None:
    """What a weak reference gives when its object is gone."""


# Operations on an array


def _on_host(core: Core) -> Builder:
    """The host's kernel, which finds the array itself."""

    def build(c: OpKernelConstruction) -> Compute:
        find, apply = finder(), core(c)
        _declare(c)
        return lambda context, handle, *inputs: apply(find(context, handle), *inputs)

    return build


def _declare(c: OpKernelConstruction) -> None:
    """Say what holds for all operations on the host's arrays."""
    c.need_context()
    c.may_be_abandoned = True  # an array is not visible after its step
    c.in_any_thread = True


def _write_on_host(c: OpKernelConstruction) -> Compute:
    """The host's Write.  Loops make as many calls of it as of any kernel, so what was checked once is remembered."""
    dtype, find = c.attr("T"), finder()
    _declare(c)
    # The last handle, and its array, of the right dtype; one tuple, as threads may share the kernel.
    last: tuple[Any, Callable[[], TensorArray | None]] = (None, _nothing)

    def compute(context: OpKernelContext, handle: Any, index: Any, value: Any, flow: Any) -> Any:
        nonlocal last
        tensor, reference = last
        array = reference() if tensor is handle else None
        if array is None:
            array = find(context, handle)
            _check_dtype(array, dtype, _WRITES)
            if is_fixed_handle(handle):
                last = handle, weakref.ref(array)
        position = int(index) if index.ndim == 0 else _scalar("index", index)
        if array.accumulates or position >= _FEW:
            _check_write(array, position, value)
        array.write(position, value)
        return flow

    return compute


def _read_on_host(c: OpKernelConstruction) -> Compute:
    """The host's Read; see `_write_on_host`."""
    dtype, find = c.attr("dtype"), finder()
    _declare(c)
    last: tuple[Any, Callable[[], TensorArray | None]] = (None, _nothing)

    def compute(context: OpKernelContext, handle: Any, index: Any, flow: Any) -> Any:
        nonlocal last
        tensor, reference = last
        array = reference() if tensor is handle else None
        if array is None:
            array = find(context, handle)
            _check_dtype(array, dtype)
            if is_fixed_handle(handle):
                last = handle, weakref.ref(array)
        return array.read(int(index) if index.ndim == 0 else _scalar("index", index))

    return compute


def _check_write(array: TensorArray, position: int, value: Any) -> None:
    """Raise ResourceExhaustedError, or NeedsThreadError, if a write needs much memory or takes long."""
    if position >= len(array):
        check_slots(position)
    if array.accumulates:
        check_inline(_ADDED * value.nbytes * COPY_NS)


def _write(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("T")

    def apply(array: TensorArray, index: Any, value: Any, flow: Any) -> Any:
        _check_dtype(array, dtype, _WRITES)
        position = _scalar("index", index)
        _check_write(array, position, value)
        array.write(position, value)
        return flow

    return apply


def _read(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("dtype")

    def apply(array: TensorArray, index: Any, flow: Any) -> Any:
        _check_dtype(array, dtype)
        return array.read(_scalar("index", index))

    return apply


def _size(c: OpKernelConstruction) -> Compute:
    return lambda array, flow: np.int32(len(array))


def _close(c: OpKernelConstruction) -> Compute:
    return lambda array: array.close()


def _gather(c: OpKernelConstruction) -> Compute:
    xp, dtype, wanted, allocate = c.xp, c.attr("dtype"), c.attr("element_shape"), allocator(c)

    def apply(array: TensorArray, *indices_and_flow: Any) -> Any:
        _check_dtype(array, dtype)
        array.expect(wanted)
        indices = indices_and_flow[:-1]
        positions = _vector("indices", *indices) if indices else range(array.joined_size)
        if not positions:
            if not array.element_shape.is_fully_defined:
                raise errors.UnimplementedError(
                    f"TensorArray has size zero, but element shape {wanted} is not fully defined. "
                    "Currently only static shapes are supported when packing zero-size TensorArrays."
                )
            return xp.empty((0, *array.element_shape.as_tuple()), dtype.np)
        if xp is not np:
            return xp.stack(array.read_many(positions))
        # Check the memory first: reading may clear elements.
        shape = array.shape_at(positions[0])
        if not wanted.is_compatible_with(shape):
            raise errors.InvalidArgumentError(
                f"TensorArray was passed element_shape {wanted} which does not match the Tensor at index 0: "
                f"{shape_text(shape)}"
            )
        announce_scratch(len(positions) * ROW_BYTES)
        check_inline(len(positions) * (ROW_NS + prod(shape) * dtype.np.itemsize * COPY_NS))
        out = allocate((len(positions), *shape))
        return stacked(array.read_many(positions), out)

    return apply


def _scatter(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("T")

    def apply(array: TensorArray, indices: Any, value: Any, flow: Any) -> Any:
        _check_dtype(array, dtype, _WRITES)
        positions = _vector("indices", indices)
        _check_rows(value)
        if len(positions) != len(value):
            raise errors.InvalidArgumentError(
                f"Expected len(indices) == values.shape[0], but saw: {len(positions)} vs. {len(value)}"
            )
        last = max(positions, default=-1)
        if not array.dynamic_size and last >= len(array):
            raise errors.InvalidArgumentError(f"Max scatter index must be < array size ({last} vs. {len(array)})")
        if last >= len(array):
            check_slots(last)
        _write_rows(array, positions, value, dtype)
        return flow

    return apply


def _check_rows(value: Any) -> None:
    if value.ndim == 0:
        raise errors.InvalidArgumentError("Input value for unpack must be at least a vector but received shape: []")


def _write_rows(array: TensorArray, positions: Sequence[int], value: Any, dtype: dtypes.DType) -> None:
    last = max(positions, default=-1)
    if last >= 0:
        array.make_room(last)  # before anything is written
    as_they_are = value.ndim > 1 or array.xp is not np
    for index, row in zip(positions, giving_way(value, ROW_NS), strict=True):
        array.write(index, row if as_they_are else np.asarray(row, dtype.np))


def _unpack(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("T")

    def apply(array: TensorArray, value: Any, flow: Any) -> Any:
        _check_dtype(array, dtype, _WRITES)
        _check_rows(value)
        if not array.dynamic_size and len(value) != len(array):
            raise errors.InvalidArgumentError(
                f"Input value must have first dimension equal to the array size ({len(value)} vs. {len(array)})"
            )
        _write_rows(array, range(len(value)), value, dtype)
        array.mark_size()
        return flow

    return apply


def _concat(c: OpKernelConstruction) -> Compute:
    xp, dtype, wanted, allocate = c.xp, c.attr("dtype"), c.attr("element_shape_except0"), allocator(c)

    def apply(array: TensorArray, flow: Any) -> Any:
        _check_dtype(array, dtype)
        count = array.joined_size
        if count == 0:
            if not wanted.is_fully_defined:
                raise errors.UnimplementedError(
                    f"TensorArray has size zero, but element_shape_except0 {wanted} is not fully defined. "
                    "Currently only static shapes are supported when concatenating zero-size TensorArrays."
                )
            return xp.empty((0, *wanted.as_tuple()), dtype.np), np.empty(0, np.int64)
        check_inline(count * ROW_NS)
        announce_scratch(count * ROW_BYTES)
        shapes = [array.shape_at(index) for index in giving_way(range(count), ROW_NS)]
        _check_parts(shapes, wanted)
        lengths = np.array([shape[0] for shape in shapes], np.int64)
        if xp is not np:
            return xp.concatenate(array.read_each(range(count))), lengths
        whole = (int(lengths.sum()), *shapes[0][1:])
        check_inline(count * ROW_NS + prod(whole) * dtype.np.itemsize * COPY_NS)
        out = allocate(whole)
        return joined(array.read_each(range(count)), out), lengths

    return apply


def _check_parts(shapes: Sequence[tuple[int, ...]], wanted: PartialTensorShape) -> None:
    """Raise InvalidArgumentError unless tensors of these shapes can be concatenated to one of the shape `wanted`."""
    inner = shapes[0][1:]
    for index, shape in enumerate(shapes):
        if not shape:
            raise errors.InvalidArgumentError(
                f"Concat saw a scalar shape at index {index} but requires at least vectors.  Did you mean to call pack?"
            )
        if index == 0 and not wanted.is_compatible_with(inner):
            raise errors.InvalidArgumentError(
                f"TensorArray was passed element_shape_except0 {wanted} but index 0 has (excepting dimension 0) shape: "
                f"{shape_text(inner)} which does not match."
            )
        if shape[1:] != inner:
            raise errors.InvalidArgumentError(
                f"TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: "
                f"{shape_text(inner)} but index {index} has (excepting dimension 0) shape: {shape_text(shape[1:])}"
            )


def _split(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("T")

    def apply(array: TensorArray, value: Any, lengths: Any, flow: Any) -> Any:
        _check_dtype(array, dtype, _WRITES)
        if value.ndim == 0:
            raise errors.InvalidArgumentError("Expected value to be at least a vector, but received shape: []")
        parts = _vector("lengths", lengths, "received")
        if any(part < 0 for part in parts):
            raise errors.InvalidArgumentError(f"Expected lengths not to be negative, got [{abridged_list(parts)}]")
        total = sum(parts)
        if total != len(value):
            raise errors.InvalidArgumentError(
                f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} "
                f"and value's shape is: {shape_text(value.shape)}"
            )
        if not array.dynamic_size and len(parts) != len(array):
            raise errors.InvalidArgumentError(
                f"TensorArray's size is not equal to the size of lengths ({len(array)} vs. {len(parts)}), "
                "and the TensorArray is not marked as dynamically resizeable"
            )
        if parts:
            array.make_room(len(parts) - 1)
        start = 0
        for index, length in enumerate(giving_way(parts, ROW_NS)):
            array.write(index, value[start : start + length])
            start += length
        array.mark_size()
        return flow

    return apply


# The `Core` of each operation, by its name.
CORES: Mapping[str, Core] = {
    "Close": _close,
    "Concat": _concat,
    "Gather": _gather,
    "Read": _read,
    "Scatter": _scatter,
    "Size": _size,
    "Split": _split,
    "Write": _write,
}

kernel(*_names("Write"), cost=0, T=_WRITABLE)(_write_on_host)
kernel(*_names("Read"), cost=0, dtype=_WRITABLE)(_read_on_host)
kernel(*_names("Size"), cost=0)(_on_host(_size))
kernel(*_names("Close"), cost=0)(_on_host(_close))
kernel(*_names("Gather"), "TensorArrayPack", dtype=_GATHERABLE)(_on_host(_gather))
kernel(*_names("Scatter"), T=_WRITABLE, scratch=lambda handle, indices, *_: rows_scratch(indices))(_on_host(_scatter))
kernel("TensorArrayUnpack", T=_WRITABLE, scratch=lambda handle, rows, *_: rows_scratch(rows))(_on_host(_unpack))
kernel(*_names("Concat"), dtype=_CONCATENABLE)(_on_host(_concat))
kernel(*_names("Split"), T=_WRITABLE, scratch=lambda handle, value, lengths, *_: rows_scratch(lengths))(
    _on_host(_split)
)
