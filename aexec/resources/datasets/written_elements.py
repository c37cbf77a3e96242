"""`WrittenElements`: passes elements on, and writes them to files, several at a time, in a thread.

The files are complete once the last element is written.  A pass that ends earlier deletes them.
Next to read: `aexec/kernels/datasets/file_cache.py`.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.resources.datasets.dataset import DatasetIterator, Element, Pass
from aexec.resources.datasets.file_elements import DEFAULT_PIECE

__all__ = ["ElementFiles", "WrittenElements"]

_MOST_ELEMENTS = 1000


class ElementFiles(ABC):
    """Files that elements are written to.  Threads write, one at a time.

    Attributes:
        has_begun: `write` was called.
        is_done: the files are complete.
        is_closed: the pass is over, so a thread that writes may stop.
    """

    def __init__(self) -> None:
        # Held while the files are used: by the thread that writes, or by who closes them.
        self._lock = threading.Lock()
        self.has_begun = self.is_done = self.is_closed = False

    @abstractmethod
    def append(self, elements: list[Element]) -> None:
        """Write elements; may stop early once the pass is over.  Raises OpError if the files cannot be written."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the files; called after the last element."""

    @abstractmethod
    def discard(self) -> None:
        """Close the files, and delete incomplete ones.  Does nothing if there are none."""

    def write(self, elements: list[Element], is_end: bool) -> None:
        """Append elements, and after the last ones complete the files.  Runs in a thread.  Raises as `append`."""
        with self._lock:
            self.has_begun = True
            try:
                if not self.is_closed:
                    self.append(elements)
                if is_end and not self.is_closed:
                    self.finish()
                    self.is_done = True
            except BaseException:
                self.discard()
                raise
            if self.is_closed and not self.is_done:
                self.discard()

    def close(self) -> None:
        """Delete incomplete files; if a thread is writing, that thread deletes them."""
        self.is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                if not self.is_done:
                    self.discard()
            finally:
                self._lock.release()


class WrittenElements(DatasetIterator):
    """The input's elements, which are also written to files.

    An error of the input is passed on, and nothing is written for it.  An error of writing is raised in place of this
    element and all later ones.
    """

    __slots__ = ("_at_end", "_broken", "_files", "_given", "_num_bytes", "_pass", "_source", "_unwritten", "_writing")

    def __init__(self, one: Pass, source: DatasetIterator, files: ElementFiles) -> None:
        self._pass = one
        self._source = source
        self._files = files
        # Not yet given to the thread; the last one may be `_given` as well.
        self._unwritten: list[Element] = []
        self._num_bytes = 0
        self._given: Element | None = None
        self._at_end = False
        self._writing: asyncio.Future[None] | None = None
        self._broken: errors.OpError | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._broken is not None:
            raise self._broken
        if self._given is None and not self._at_end:
            element = await self._source.next(context)
            if element is None:
                self._at_end = True
            else:
                self._unwritten.append(self._pass.keep(element))
                self._num_bytes += sum([component.nbytes for component in element])
            self._given = element
        await self._write_some(context)
        given, self._given = self._given, None
        return given

    async def _write_some(self, context: OpKernelContext) -> None:
        """Write pending elements and wait for that, if they are many, the last ones or the first ones."""
        if self._writing is None:
            much = self._num_bytes >= DEFAULT_PIECE or len(self._unwritten) >= _MOST_ELEMENTS
            if self._files.is_done or not (much or self._at_end or not self._files.has_begun):
                return
            elements, self._unwritten, self._num_bytes = self._unwritten, [], 0
            self._writing = context.worker_pool.start(self._files.write, elements, self._at_end)
        await asyncio.wait([self._writing])  # which a cancelled step leaves to the next one
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except errors.OpError as error:
            self._broken = error
            raise

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()  # so that it does not begin, unless it has
        self._unwritten.clear()
        self._files.close()
