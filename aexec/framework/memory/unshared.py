"""Unshared arrays: whose memory may be written to, or kept without a copy, because nobody else can see it.

TensorFlow asks a tensor's buffer whether its reference count is one; here Python's own counts tell.  A kernel's
inputs are referred to by one list (or tuple) that the executor made for the call, out of argument slots that it
emptied.  If the list's is the only reference to an array, that stays so, on whichever thread the call then runs:
nobody can get hold of an array that nobody else refers to.  The same holds for its memory:

* The memory belongs to the array itself, or to one that only this array is a view of.  Every view of it, and
  whoever exports its buffer, refers to the owner, and NumPy makes a view of a view refer to the owner, too.
* So what is fetched, fed by somebody who still has it, a constant, kept by a stack, list, queue or session, or
  still to go to another consumer, is counted; a variable's value is read-only besides.
* Memory that is no array's own (borrowed from bytes, a file, another library) is never taken.

A count that is too high, because an error's traceback or a tracer holds an array, costs a copy and nothing more.
Where counts are only approximate, without a global interpreter lock, everything counts as shared.
Next to read: `op_kernel.OpKernelConstruction.forward_inputs`, and `state/tensor_cell.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework.memory.tensor_buffer import ALIGNMENT

__all__ = ["COUNTS_ARE_EXACT", "FORWARDED_BYTES", "fits", "forwardable", "is_unshared", "single_references"]

# Below this size a fresh array comes out of the processor's caches, and costs less than the question.
FORWARDED_BYTES = 1 << 16


def is_unshared(inputs: Sequence[Any], position: int) -> bool:
    """Is an input held by nobody but the list of inputs that a kernel was given, and does it own its memory?

    Then a cell may take it as its value.  See `OpKernelConstruction.take_list`.
    """
    array = inputs[position]
    if type(array) is not np.ndarray or sys.getrefcount(array) != _LISTED:
        return False
    flags = array.flags
    return bool(COUNTS_ARE_EXACT and flags.owndata and flags.c_contiguous and flags.writeable)


def forwardable(inputs: Sequence[Any], positions: Sequence[int]) -> Any | None:
    """One of these inputs that an output may be written over, or None.

    Args:
        inputs: all inputs of a call, which nothing else of the executor refers to.
        positions: of those to choose from; the output has the shape that they are broadcast to.
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
    # A view of all of it, but for what aligns it: of a part, the whole would be kept for longer.
    return bool(
        type(owner) is np.ndarray
        and sys.getrefcount(owner) == _OWNING
        and owner.flags.owndata
        and owner.nbytes <= array.nbytes + ALIGNMENT
    )


def single_references(outputs: Any) -> tuple[bool, ...]:
    """Of what a kernel has just returned, an array or a tuple of them, which has nobody a reference to but the caller?

    The caller refers to `outputs` by one variable, and has put it nowhere else: not among the arguments of a call that
    this one is an argument of, either.
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
    """Are these inputs broadcast to `shape`, if they can be broadcast at all?"""
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


# How many references are counted where nobody else has one: interpreters differ in how they pass
# arguments, so each form is measured once on an array that certainly nobody else has.


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
