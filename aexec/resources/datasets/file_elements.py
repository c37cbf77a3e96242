"""`FileElements`: elements that worker threads read from files, a piece at a time.

A thread reads a piece when the last one is used up; from the third piece on, while the last one is used, and then up to
four at a time, since handing work to a thread takes as long as reading a piece.  When a piece is there the iterator
holds no thread.  A step that is cancelled does not wait for the piece; the next step gets it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.loop_budget import giving_way
from aexec.resources.datasets.dataset import DatasetIterator, Element, Pass

__all__ = ["DEFAULT_PIECE", "FileElements", "Many", "OpenFile", "Outcome"]


@dataclass(frozen=True, slots=True)
class Many:
    """Several elements of a file.

    Attributes:
        elements: one or more; few enough to be made in a part of a slice.
        num_bytes: the bytes of their strings.
    """

    elements: list[Element]
    num_bytes: int


# An element, or the error that comes in its place.
Outcome = Element | errors.OpError
# Opens a file, at the first element.  An error that it raises ends the file, one that it yields does not.
OpenFile = Callable[[], Generator[Outcome | Many, None, None]]

DEFAULT_PIECE = 256 << 10
"""The bytes of a piece, unless a dataset's `buffer_size` says otherwise."""
# A thread that reads for longer would keep kernels waiting.
_MOST_BYTES = 8 << 20
_MOST_ELEMENTS = 4096
# The pieces that are read at a time in the end, and their most bytes.
_PIECES_AT_ONCE, _MOST_AT_ONCE = 4, 1 << 20
# Nanoseconds to read an element, at least.
_ELEMENT_NS = 2_000.0
_ELEMENT_BYTES = 150


class FileElements(DatasetIterator):
    """Goes through files one after another.  After an error of one file it goes on with the next.

    Args:
        one: the pass.
        files: opens each of the files.
        piece: the bytes to read at a time.
    """

    __slots__ = (
        "_at_end",
        "_file",
        "_files",
        "_first_piece",
        "_has_errors",
        "_is_closed",
        "_lock",
        "_pass",
        "_piece",
        "_pieces",
        "_reading",
        "_ready",
    )

    def __init__(self, one: Pass, files: Iterator[OpenFile], piece: int) -> None:
        self._pass = one
        self._files = files
        self._piece = self._first_piece = min(piece, _MOST_BYTES)
        self._file: Generator[Outcome | Many, None, None] | None = None
        # What is there, the next one last.
        self._ready: list[Outcome] = []
        self._has_errors = False
        self._pieces = 0
        self._reading: asyncio.Future[tuple[list[Outcome], int, bool]] | None = None
        self._at_end = False
        # Held while the file is used: by the thread that reads, or by who closes it.
        self._lock = threading.Lock()
        self._is_closed = False

    async def next(self, context: OpKernelContext) -> Element | None:
        while not self._ready:
            if self._at_end:
                return None
            await self._read_ahead(context)
        outcome = self._ready.pop()
        if isinstance(outcome, errors.OpError):
            raise outcome
        return outcome

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        if self._has_errors:
            return []
        elements: list[Element] = self._ready[: -most - 1 : -1]  # type: ignore[assignment]
        del self._ready[-most:]
        return elements

    async def _read_ahead(self, context: OpKernelContext) -> None:
        if self._reading is None:
            self._reading = context.worker_pool.start(self._read)
        await asyncio.wait([self._reading])  # which a cancelled step leaves to the next one
        reading, self._reading = self._reading, None
        outcomes, size, self._has_errors = reading.result()
        self._at_end = not outcomes
        ahead = self._pieces > 0 and not self._at_end
        if ahead and self._pass.kept is None:  # a limit of memory may be smaller than that
            self._piece = max(self._piece, min(_PIECES_AT_ONCE * self._first_piece, _MOST_AT_ONCE))
        self._pass.count(self, size + (self._piece if ahead else 0))
        self._pieces += 1
        outcomes.reverse()
        self._ready = outcomes
        if ahead:
            self._reading = context.worker_pool.start(self._read)

    def _read(self) -> tuple[list[Outcome], int, bool]:
        """Runs in a thread: the next piece, empty at the end; its bytes; and whether an error is among it."""
        outcomes: list[Outcome] = []
        size, has_errors = 0, False
        with self._lock:
            for outcome in giving_way(self._outcomes(), _ELEMENT_NS):
                if isinstance(outcome, Many):
                    outcomes += outcome.elements
                    size += _ELEMENT_BYTES * len(outcome.elements) + outcome.num_bytes
                elif isinstance(outcome, errors.OpError):
                    outcomes.append(outcome)
                    has_errors = True
                    size += _ELEMENT_BYTES
                else:
                    outcomes.append(outcome)
                    for component in outcome:
                        size += _ELEMENT_BYTES + _size(component)
                if size >= self._piece or len(outcomes) >= _MOST_ELEMENTS or self._is_closed:
                    break
        if self._is_closed:
            self._close_file()
        return outcomes, size, has_errors

    def _outcomes(self) -> Iterator[Outcome | Many]:
        while not self._is_closed:
            if self._file is None:
                open_file = next(self._files, None)
                if open_file is None:
                    return
                self._file = open_file()
            try:
                outcome = next(self._file, None)
            except errors.OpError as error:
                outcome = error
                self._file = None
            if outcome is None:
                self._file = None
            else:
                yield outcome

    def close(self) -> None:
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()  # so that it does not begin, unless it has
        self._ready.clear()
        self._at_end = True
        self._close_file()

    def _close_file(self) -> None:
        """Close the file, unless it is in use: then the thread that uses it does."""
        if self._lock.acquire(blocking=False):
            try:
                file, self._file = self._file, None
                if file is not None:
                    file.close()
            finally:
                self._lock.release()


def _size(component: Any) -> int:
    return len(component.item()) if component.dtype.hasobject else int(component.nbytes)
