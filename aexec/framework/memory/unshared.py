"""Unshared arrays: a kernel may write over their memory, or keep it without a copy, because nothing else refers to it.

TensorFlow asks a tensor's buffer whether its reference count is one; here Python's reference counts tell.  The executor
takes a kernel's inputs out of their argument slots, and refers to them by one list (or tuple) made for the call.  If
that list has the only reference to an array, this stays true on whichever thread the call runs: no code can reach an
array that nothing else refers to.  The same holds for its memory:

* The memory belongs to the array itself, or to one that only this array is a view of.  Every view, and every exporter
  of the buffer, refers to the owner; for a view of a view NumPy does so, too.
* So there is a second reference to a value that is fetched, fed by a caller who still has it, a constant, kept by a
  stack, list, queue or session, or waiting for another consumer.  A variable's value is read-only, too.
* Memory that is not an array's own (borrowed from bytes, a file, another library) is never taken.

A count that is too high, because an error's traceback or a tracer refers to an array, only costs a copy.  Without a
global interpreter lock counts are approximate, and everything counts as shared.
Next to read: `op_kernel.OpKernelConstruction.forward_inputs`, and `state/tensor_cell.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework.memory.tensor_buffer import ALIGNMENT

__all__ = ["COUNTS_ARE_EXACT", "FORWARDED_BYTES", "fits", "forwardable", "is_unshared", "single_references"]

# Bytes.  A smaller fresh array fits into the processor's caches, and costs less than the check.
FORWARDED_BYTES = 1 << 16


def is_unshared(inputs: Sequence[Any], position: int) -> bool:
    """True if only a kernel's list of inputs refers to an input, and the input owns its memory.

    Then a cell may take it as its value.  See `OpKernelConstruction.take_list`.
    """
    array = inputs[position]
    if type(array) is not np.ndarray or sys.getrefcount(array) != _LISTED:
        return False
    flags = array.flags
    return bool(COUNTS_ARE_EXACT and flags.owndata and flags.c_contiguous and flags.writeable)


def forwardable(inputs: Sequence[Any], positions: Sequence[int]) -> Any | None:
    """An input that an output may be written over, or None.

    Args:
        inputs: all inputs of a call, to which the executor has no other reference.
        positions: the positions to choose from; the output has the shape that these inputs broadcast to.
    """
    for position in positions:
        array = inputs[position]
        if (
            type(array) is np.ndarray
            and array.nbytes >= FORWARDED_BYTES
            and sys.getrefcount(array) == _LISTED
            and _is_writable(array)
            and fits(array.shape, inputs, positions)
        ):
            return array
    return None


def _is_writable(array: Any) -> bool:
    flags = array.flags
    if not (COUNTS_ARE_EXACT and flags.c_contiguous and flags.writeable):
        return False
    owner = array.base
    if owner is None:
        return bool(flags.owndata)
    # Only a view of the whole buffer, but for alignment: a part would keep the whole for longer.
    return bool(
        type(owner) is np.ndarray
        and sys.getrefcount(owner) == _OWNING
        and owner.flags.owndata
        and owner.nbytes <= array.nbytes + ALIGNMENT
    )


def single_references(outputs: Any) -> tuple[bool, ...]:
    """For each output that a kernel has just returned, True if only the caller refers to it.

    The caller must refer to `outputs` by one variable alone; this call must not be an argument of another call with it.
    """
    if type(outputs) is tuple:
        return tuple(
            [sys.getrefcount(outputs[i]) == _SUBSCRIPTED and _has_memory_alone(outputs[i]) for i in range(len(outputs))]
        )
    return (sys.getrefcount(outputs) == _PASSED and _has_memory_alone(outputs),)


def _has_memory_alone(array: Any) -> bool:
    if type(array) is not np.ndarray or not COUNTS_ARE_EXACT:
        return False
    owner = array.base
    return bool(owner is None or (type(owner) is np.ndarray and sys.getrefcount(owner) == _OWNING))


def fits(shape: tuple[int, ...], inputs: Sequence[Any], positions: Sequence[int]) -> bool:
    """True if these inputs broadcast to `shape`, provided that they can be broadcast at all."""
    for position in positions:
        other = inputs[position].shape
        if other == shape:
            continue
        if len(other) > len(shape):
            return False
        for size, wanted in zip(reversed(other), reversed(shape), strict=False):
            if size not in (1, wanted):
                return False
    return True


# The reference counts of an array without other references.  Interpreters differ in how they pass arguments, so each
# form is measured once.


def _count_listed() -> int:
    def count(inputs: Sequence[Any], position: int) -> int:
        array = inputs[position]
        return sys.getrefcount(array)

    return count([np.empty(1)], 0)


def _count_owning() -> int:
    def count(array: Any) -> int:
        owner = array.base
        return sys.getrefcount(owner)

    return count(np.empty((2, 1)).reshape(2))


def _count_passed() -> int:
    def count(array: Any) -> int:
        return sys.getrefcount(array)

    array = np.empty(1)
    return count(array)


def _count_subscripted() -> int:
    arrays = (np.empty(1),)
    return sys.getrefcount(arrays[0])


COUNTS_ARE_EXACT: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
_LISTED = _count_listed()
_OWNING = _count_owning()
_PASSED = _count_passed()
_SUBSCRIPTED = _count_subscripted()
