"""Allocation of outputs whose size depends on the values of inputs: Fill, Tile, OneHot and similar ops.

A request of a few bytes may ask for terabytes.  Linux grants nearly any allocation and kills the process when the pages
are touched, so large sizes are compared with the free memory before anything is written.  Large arrays come from the
device's allocator; small ones only while the call is watched, as counting them takes longer than making them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.allocated_outputs import LARGE_BYTES
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.memory.allocator import TRACKED_CALLS, announce
from aexec.framework.memory.memory import available_memory, is_out_of_memory
from aexec.framework.shape import MAX_RANK, shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.framework.zeros import fill_objects, zero_object

__all__ = ["allocator", "explain_with"]

# Below this, asking the system for its free memory takes longer than is worth it.
_UNCHECKED_BYTES = 256 << 20

_MAX_ELEMENTS = 2**63 - 1
# The most dimensions of a NumPy array.
_MOST_DIMENSIONS = 64


def allocator(c: OpKernelConstruction, output: int = 0) -> Callable[..., Any]:
    """A function `(shape, make=xp.empty) -> array` that makes an output of the node after checking its size.

    With `make=xp.zeros` strings are empty and other objects None. It raises InvalidArgumentError for a negative
    dimension, more than 254 dimensions or more than 2**63 - 1 elements, ResourceExhaustedError for a size that does not
    fit into memory, and on an event loop NeedsThreadError for an array that takes long to fill.  So call it before
    anything has changed.
    """
    dtype, device, xp = c.output_types[output].base, c.device, c.xp
    numpy_dtype, empty, zeros, of_device = dtype.np, xp.empty, xp.zeros, c.allocator_of_calls

    on_host = xp is np
    counted = LARGE_BYTES // numpy_dtype.itemsize if on_host else math.inf

    def allocate(shape: Any, make: Any = empty) -> Any:
        if make is zeros and numpy_dtype.hasobject:
            out = allocate(shape)
            fill_objects(out, zero_object(dtype))
            return out
        try:
            if len(shape) > MAX_RANK:
                raise errors.InvalidArgumentError(f"Too many dimensions: {len(shape)} > {MAX_RANK}")
            # In a type too small for the product it is wrong; `make` then refuses.
            elements = math.prod(shape)
        except TypeError:
            elements = shape
        if elements >= counted or TRACKED_CALLS[0]:
            array = from_device(shape, make)
            if array is not None:
                return array
        try:
            array = make(shape, numpy_dtype)
        except (MemoryError, ValueError, OverflowError) as e:
            raise _refused(shape, dtype, device) from e
        if on_host and array.nbytes > _UNCHECKED_BYTES:
            check_room(array.shape, array.nbytes)
        return array

    def from_device(shape: Any, make: Any) -> Any:
        """An array of the device's allocator, or None if `make` must make or refuse it."""
        dims = _dimensions(shape)
        elements = math.prod(dims)
        if not on_host or (make is not empty and make is not zeros):
            return None
        # NumPy multiplies the dimensions other than 0, even if the array has no elements.
        if math.prod(filter(None, dims)) * numpy_dtype.itemsize > _MAX_ELEMENTS or min(dims, default=0) < 0:
            return None
        if len(dims) > _MOST_DIMENSIONS:
            return None
        check_room(dims, elements * numpy_dtype.itemsize)
        check_inline(elements * numpy_dtype.itemsize * COPY_NS)
        if numpy_dtype.hasobject:
            announce(elements * numpy_dtype.itemsize)  # allocators do not count objects
        return of_device().allocate_tensor(dims, dtype, device, zeros=make is zeros)

    def check_room(dims: Iterable[int], num_bytes: int) -> None:
        if num_bytes > _UNCHECKED_BYTES and num_bytes > available_memory():
            raise _out_of_memory(dims, dtype, device)

    return allocate


def _dimensions(shape: Any) -> list[int]:
    """A shape as a list of Python integers, as NumPy's functions take it."""
    return [int(size) for size in (shape if isinstance(shape, list | tuple | np.ndarray) else (shape,))]


def _refused(shape: Any, dtype: DType, device: str) -> errors.OpError:
    dims = [shape] if isinstance(shape, int) else list(shape)
    for size in dims:
        if size < 0:
            return errors.InvalidArgumentError(f"Dimension {size} must be >= 0")
    if math.prod(dims) > _MAX_ELEMENTS:
        return errors.InvalidArgumentError(f"Shape {shape_text(dims)} would have more than 2**63 - 1 elements")
    return _out_of_memory(dims, dtype, device)


def _out_of_memory(shape: Iterable[int], dtype: DType, device: str) -> errors.ResourceExhaustedError:
    return errors.ResourceExhaustedError(
        f"OOM when allocating tensor with shape{shape_text(shape)} and type {dtype} on {device} by allocator cpu"
    )


def explain_with(check: Callable[..., Any]) -> Callable[..., errors.OpError]:
    """Return an `OpKernelConstruction.explain` that runs `check(*inputs)`, which raises TensorFlow's error.

    So a compute callable need not check for inputs that make NumPy raise anyway.
    """

    def explain(exception: BaseException, *inputs: Any) -> errors.OpError:
        try:
            check(*inputs)
        except errors.OpError as error:
            return error
        if is_out_of_memory(exception):
            return errors.ResourceExhaustedError(f"OOM: {exception}")
        return errors.InternalError(f"{type(exception).__name__}: {exception}")

    return explain
