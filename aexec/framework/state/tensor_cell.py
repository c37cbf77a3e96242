"""`TensorCell`: the place where a variable keeps its value.

A value that was read never changes, and an update of a value that nothing else holds writes
into it.  Both follow from these invariants:

* The cell's array owns its memory, so every view of it, and whatever exports its buffer,
  holds a reference to the array itself.  If the cell's is the only reference, nothing else
  sees what is written.
* The array is read-only while it can be read.  Writing is allowed only during an update, and
  a fetched result cannot be used to change a variable.
* An update takes the array out of the cell before it counts the references.  Nothing can get
  hold of it from then on, so a count of one stays one.  Readers wait meanwhile.
* An update happens under the cell's lock, which is held only while a kernel computes and
  never while waiting for anything else.  The event loop never waits for it: see
  `waiting/postponing_lock.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import WATCHED_CALLS, announce, note_kept
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.unshared import COUNTS_ARE_EXACT
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.framework.waiting.postponing_lock import PostponingLock

__all__ = ["Exchanging", "TensorCell", "Writing", "private_copy"]


class TensorCell:
    """A mutable, possibly uninitialised tensor.  All methods may be called from any thread.

    Attributes:
        dtype: the type of its values.
        size: the number of elements of the value; 1 while there is none.
        kept: counts the bytes of the value, or None.
    """

    __slots__ = ("__weakref__", "_array", "_lock", "dtype", "kept", "size")

    def __init__(self, dtype: DType, value: Any = None) -> None:
        self.dtype = dtype
        self.size = 1
        self.kept: KeptMemory | None = None
        self._array: Any = None
        self._lock = PostponingLock()
        self.value = value

    @property
    def value(self) -> Any:
        """The value, a read-only array that never changes; None while uninitialised.

        Setting it takes a copy; None makes it uninitialised.  Raises PostponedError on the event loop while an update
        is under way.
        """
        array = self._array
        if array is None:  # uninitialised, or an update has taken it
            self._lock.acquire()
            array = self._array
            self._release(array)
        return array

    @value.setter
    def value(self, value: Any) -> None:
        self.replace(None if value is None else private_copy(value))

    def replace(self, array: Any) -> None:
        """Make `array` the value.

        Args:
            array: an array that owns its memory and to which nothing else refers, such as `private_copy` makes and
                `unshared.is_unshared` recognises; or the value of another device.

        Raises:
            ResourceExhaustedError: the session's limit does not allow it.
        """
        if self.kept is not None:
            self.kept.keep((array,))
        self._lock.acquire()
        self._release(array)

    def update(self, compute: Callable[[Any, Any], Any]) -> None:
        """Make `compute(value, out)` the value.

        Args:
            compute: returns the new value, an array or NumPy scalar of its own.  `out` is the array to write it to:
                `value` itself if nothing else holds it, else None.  If it raises, the cell is unchanged, unless it had
                begun to write.

        Raises:
            FailedPreconditionError: the cell is uninitialised.
        """
        array = self._take()
        try:
            if _is_alone(array):
                array.flags.writeable = True
                array = np.asarray(compute(array, array))
            else:
                array = np.asarray(compute(array, None))
        finally:
            self._release(array)

    # For `Writing`, which takes several cells at once

    def _take(self) -> Any:
        """Lock the cell and take the array out: from now on no reader can get hold of it."""
        self._lock.acquire()
        array, self._array = self._array, None
        if array is None:
            self._release(None)
            raise errors.FailedPreconditionError("Attempting to use uninitialized variables")
        return array

    def _release(self, array: Any) -> None:
        """Put `array` into the cell and unlock it."""
        if array is None:
            self.size = 1
        else:
            if isinstance(array, np.ndarray):  # a device's value is never written to
                array.flags.writeable = False
                if self.kept is not None:
                    self.kept.note((array,))
            self.size = array.size
        self._array = array
        self._lock.release()

    def __repr__(self) -> str:
        array = self._array
        if array is None:
            state = "uninitialized"
        elif isinstance(array, np.ndarray):
            state = f"shape={array.shape}"
        else:  # a device's value
            state = repr(array)
        return f"<{type(self).__name__} {self.dtype} {state}>"


class Writing:
    """A context in which a kernel writes to the values of cells.

        with Writing(variable, accumulator) as (v, a):
            a += gradient * gradient
            v -= rate * gradient

    The arrays are writable, and invisible to others until the context ends.  A value that something else holds is
    copied first; a cell that is given twice yields the same array twice.  Entering raises FailedPreconditionError for a
    cell without a value, and PostponedError or NeedsThreadError, before anything is changed.
    """

    __slots__ = ("_arrays", "_cells")

    def __init__(self, *cells: TensorCell) -> None:
        self._cells = cells
        self._arrays: dict[TensorCell, Any] = {}

    def __enter__(self) -> Sequence[Any]:
        arrays = self._arrays
        try:
            # In one order for all callers, so that two that want the same cells never wait for one another.
            for cell in sorted(set(self._cells), key=id):
                arrays[cell] = cell._take()
            for cell in arrays:
                if _is_alone_in(arrays, cell):
                    arrays[cell].flags.writeable = True
                else:
                    check_inline(arrays[cell].nbytes * COPY_NS)
                    arrays[cell] = arrays[cell].copy()
        except BaseException:
            self._put_back()
            raise
        return [arrays[cell] for cell in self._cells]

    def __exit__(self, *exc_info: object) -> None:
        self._put_back()

    def _put_back(self) -> None:
        while self._arrays:
            cell, array = self._arrays.popitem()
            cell._release(array)


class Exchanging:
    """A context in which the values of cells are replaced by others, which a device computes from them.

        with Exchanging(cells) as values:  # None where there is none
            values[:] = ...

    Nothing else reads or changes the cells meanwhile; an exception leaves them unchanged.  Of a cell that is given
    twice the last value counts.  Entering raises PostponedError before anything is changed.
    """

    __slots__ = ("_cells", "_taken", "_values")

    def __init__(self, cells: Sequence[TensorCell]) -> None:
        self._cells = cells
        self._taken: dict[TensorCell, Any] = {}
        self._values: list[Any] = []

    def __enter__(self) -> list[Any]:
        try:
            for cell in sorted(set(self._cells), key=id):
                cell._lock.acquire()
                self._taken[cell] = cell._array
        except BaseException:
            self._put_back()
            raise
        self._values = [self._taken[cell] for cell in self._cells]
        return self._values

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._taken.update(zip(self._cells, self._values, strict=True))
        self._put_back()

    def _put_back(self) -> None:
        while self._taken:
            cell, array = self._taken.popitem()
            cell._release(array)


def private_copy(value: Any) -> Any:
    """A copy of an array or a number, which a cell can take as its value."""
    if not WATCHED_CALLS[0]:
        return np.array(value, order="C")
    announce(getattr(value, "nbytes", 8))
    copied = np.array(value, order="C")
    note_kept(copied)
    return copied


def _is_alone(array: Any) -> bool:
    """True if only the caller holds the array, in one variable."""
    return sys.getrefcount(array) == _PASSED and COUNTS_ARE_EXACT


def _is_alone_in(arrays: dict[TensorCell, Any], cell: TensorCell) -> bool:
    return sys.getrefcount(arrays[cell]) == _SUBSCRIPTED and COUNTS_ARE_EXACT


# Reference counts of an array that nothing else holds.  Interpreters differ in how they pass arguments, so each form is
# # measured once on an array that certainly nothing else holds.


def _count_passed() -> int:
    array = np.empty(1)

    def count(array: Any) -> int:
        return sys.getrefcount(array)

    return count(array)


def _count_subscripted() -> int:
    arrays = {0: np.empty(1)}
    return sys.getrefcount(arrays[0])


_PASSED = _count_passed()
_SUBSCRIPTED = _count_subscripted()
