"""Buffers: the memory behind arrays, which views share.

Arrays alias each other freely (a slice, a reshape, an Identity), so copying, counting and keeping alive are about
buffers, not arrays.
Next to read: `allocator.py`, and `unshared.is_unshared`, where Python's reference counts play the part of
TensorFlow's TensorBuffer::RefCountIsOne.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.waiting.loop_budget import DEFAULT, MEASURE_NS, let_others_run

__all__ = [
    "ALIGNMENT",
    "CPU_ALLOCATOR",
    "STRING_BYTES",
    "TensorSizes",
    "allocation_description",
    "allocation_id",
    "buffer_of",
    "dtype_of",
    "measuring_ns",
    "memory_bytes",
    "new_allocation_id",
    "num_bytes",
    "sizes_of",
    "tensor_description",
]


# Bytes; the best alignment for vector instructions and libraries.
ALIGNMENT = 64
# The number of addresses that are sorted at a time.
_SORTED = 1 << 16
# The number of objects in a piece of work.
_AT_ONCE = DEFAULT.pieces(MEASURE_NS)
CPU_ALLOCATOR = "cpu"
# Bytes of a Python string besides its characters.
STRING_BYTES = 40


def buffer_of(array: Any) -> Any:
    """The object that owns an array's memory: the array itself, or the last object in its chain of bases.

    Buffers are told apart by identity.  Of a memory-mapped or borrowed array it is the object that the
    memory was borrowed from, of a CuPy array its block of device memory.
    """
    if hasattr(array, "__cuda_array_interface__"):
        return array.data.mem
    owner = array
    while True:
        base = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        if base is None or isinstance(base, int | type):
            return owner
        owner = base


class TensorSizes(NamedTuple):
    """Bytes of a tensor: those of its elements, and those that it takes in memory, which is more for strings."""

    num_bytes: int
    in_memory: int


def num_bytes(array: Any) -> int:
    """The bytes of all elements; for strings also of their contents, each object once.

    Takes long for many strings: see `measuring_ns`.
    """
    return sizes_of(array).num_bytes


def memory_bytes(array: Any) -> int:
    """`num_bytes`, with Python's overhead for each string, which is mostly more than the contents."""
    return sizes_of(array).in_memory


def sizes_of(array: Any) -> TensorSizes:
    """`num_bytes` and `memory_bytes`, in the time of one."""
    total, count = int(array.nbytes), 0
    if array.dtype == object and array.size:
        for strings in _distinct_strings(np.ascontiguousarray(array).reshape(-1)):
            total += sum(map(len, strings))
            count += len(strings)
    return TensorSizes(total, total + STRING_BYTES * count)


def _distinct_strings(objects: Any) -> Iterator[list[bytes]]:
    """Yield lists with each distinct string object of a vector once.

    Objects are compared by their addresses, which are the array's elements, so that Python makes no object for each.
    It works in pieces first, so that a long vector that repeats few strings is hardly copied.
    """
    addresses = np.ndarray(objects.shape, np.intp, objects)
    order = np.concatenate(
        [start + _firsts(addresses[start : start + _SORTED]) for start in range(0, addresses.size, _SORTED)]
    )
    if addresses.size > _SORTED:
        order = order[_firsts(addresses[order])]
    for start in range(0, order.size, _AT_ONCE):
        if start:
            let_others_run()
        found = objects[order[start : start + _AT_ONCE]].tolist()
        yield [element for element in found if isinstance(element, bytes)]


def _firsts(addresses: Any) -> Any:
    """The index of the first occurrence of each address."""
    order = addresses.argsort()
    addresses = addresses[order]
    is_first = np.empty(order.size, bool)
    is_first[0] = True
    np.not_equal(addresses[1:], addresses[:-1], out=is_first[1:])
    return order[is_first]


def measuring_ns(array: Any) -> float:
    """The time that `num_bytes` takes, in ns; 0 if the elements are no objects."""
    return MEASURE_NS * array.size if array.dtype == object else 0.0


# Allocation ids: numbers of buffers that are not used again, as addresses are

_ids = itertools.count(1)
# Address of the owner → (its id, weak reference that takes the entry out).
_known: dict[int, tuple[int, weakref.ref[Any]]] = {}


def new_allocation_id() -> int:
    """A new id, for memory that belongs to no array."""
    return next(_ids)


def allocation_id(array: Any) -> int:
    """The id of the array's buffer, unique in the process; 0 if its owner cannot be identified."""
    owner = buffer_of(array)
    key = id(owner)
    entry = _known.get(key)
    if entry is None or entry[1]() is not owner:
        try:
            reference = weakref.ref(owner, lambda dead: _forget(key, dead))
        except TypeError:  # a NumPy scalar, or the bytes behind a borrowed array
            return 0
        entry = _known[key] = (next(_ids), reference)
    return entry[0]


def _forget(key: int, dead: weakref.ref[Any]) -> None:
    entry = _known.get(key)
    if entry is not None and entry[1] is dead:
        del _known[key]


def dtype_of(array: Any) -> DType:
    """The data type of an array as a tensor; for objects it is that of the first element."""
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is not dtypes.string or array.dtype != object or array.size == 0:
        return dtype
    first = array.flat[0]
    if isinstance(first, bytes | str):
        return dtypes.string
    return dtypes.resource if type(first).__name__ == "ResourceHandle" else dtypes.variant


def allocation_description(
    array: Any, allocator_name: str = CPU_ALLOCATOR, *, single: bool = False
) -> proto.AllocationDescription:
    """The AllocationDescription of an array's memory.

    Args:
        single: True if only the caller has a reference to it: see `unshared.single_references`.
    """
    size = num_bytes(array)
    owner = buffer_of(array)
    return proto.AllocationDescription(
        requested_bytes=size,
        # With alignment, or of the whole buffer that the array is a part of.
        allocated_bytes=max(size, owner.nbytes) if isinstance(owner, np.ndarray) else size,
        allocator_name=allocator_name,
        allocation_id=allocation_id(array),
        has_single_reference=single,
        ptr=array.ctypes.data if isinstance(array, np.ndarray) else 0,
    )


def tensor_description(
    array: Any, dtype: DType | None = None, allocator_name: str = CPU_ALLOCATOR, *, single: bool = False
) -> proto.TensorDescription:
    """The TensorDescription of an array, without its values.  Arguments as for `allocation_description`."""
    described = allocation_description(array, allocator_name, single=single)
    message = proto.TensorDescription(allocation_description=described)
    message.dtype = (dtype or dtype_of(array)).enum
    for size in array.shape:
        message.shape.dim.add(size=size)
    return message
