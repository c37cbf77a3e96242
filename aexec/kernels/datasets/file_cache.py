"""Caches of datasets in files: TensorFlow's, which are tensor bundles with a key for each component of each element.

The bundle is there when its index is, which is renamed into place when a pass has come to the end.  A pass that ends
before leaves nothing.  While a pass writes, a lock file keeps others from writing the same cache.
Next to read: `aexec/io/tensor_bundle.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Generator
from itertools import count

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import OpKernelContext
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.io.files import reporting, text_path
from aexec.io.tensor_bundle import BundleReader, BundleWriter, index_path
from aexec.resources.datasets.dataset import Dataset, DatasetIterator, Element, Pass
from aexec.resources.datasets.file_elements import DEFAULT_PIECE, FileElements, Outcome

__all__ = ["FileCached"]

_MOST_ELEMENTS = 1000


def _key(number: int, component: int, components: int) -> str:
    return f"{number:7d}_{component:{len(str(components - 1))}d}"


class FileCached(DatasetIterator):
    """The elements in the cache's files if these are there when the first one is asked for; else the input's, which
    are written to the cache.

    Args:
        path: what the names of the files begin with.
    """

    __slots__ = ("_chosen", "_pass", "_path", "_source")

    def __init__(self, one: Pass, source: Dataset, path: bytes) -> None:
        self._pass = one
        self._source = source
        self._path = text_path(path)
        self._chosen: DatasetIterator | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._chosen is None:
            there = await context.worker_pool.run(os.path.exists, index_path(self._path))
            self._chosen = self._pass.adopt(self._reading() if there else self._writing())
        return await self._chosen.next(context)

    def _reading(self) -> DatasetIterator:
        def opened() -> Generator[Outcome, None, None]:
            return _elements(self._path, self._source.types)

        return FileElements(self._pass, iter([opened]), DEFAULT_PIECE)

    def _writing(self) -> DatasetIterator:
        return _Writing(self._pass, self._pass.begin(self._source), self._path, self._source.types)


def _elements(path: str, types: tuple[DType, ...]) -> Generator[Outcome, None, None]:
    with BundleReader(path) as reader:
        for number in count():
            keys = [_key(number, component, len(types)) for component in range(len(types))]
            if not keys or keys[0] not in reader:
                return
            for key, dtype in zip(keys, types, strict=True):
                found, _ = reader.dtype_and_shape(key)
                if found is not dtype:
                    raise errors.InvalidArgumentError(
                        f"The cache {path} has elements of other types: component {key} is {found}, expected {dtype}"
                    )
            yield tuple([reader.read(key) for key in keys])


class _Writing(DatasetIterator):
    """The input's elements, which a thread writes to the cache, some at a time."""

    __slots__ = (
        "_at_end",
        "_broken",
        "_files",
        "_given",
        "_num_bytes",
        "_pass",
        "_source",
        "_unwritten",
        "_writing",
    )

    def __init__(self, one: Pass, source: DatasetIterator, path: str, types: tuple[DType, ...]) -> None:
        self._pass = one
        self._source = source
        self._files = _Files(path, types)
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
        """Write what is unwritten, if that is much or the end, or if nothing was written before; and wait for it."""
        if self._writing is None:
            much = self._num_bytes >= DEFAULT_PIECE or len(self._unwritten) >= _MOST_ELEMENTS
            if not (much or self._at_end or not self._files.are_open) or self._files.are_done:
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


class _Files:
    """The files of a cache that is written.  Threads write, one at a time.

    Attributes:
        are_open: something was written, or may not be.
        are_done: the cache is whole.
    """

    def __init__(self, path: str, types: tuple[DType, ...]) -> None:
        self._path = path
        self._lock_path = f"{path}_0.lockfile"
        self._types = types
        self._number = 0
        self._bundle: BundleWriter | None = None
        self._is_locked = False
        # Held while the files are used: by the thread that writes, or by who closes them.
        self._lock = threading.Lock()
        self._is_closed = False
        self.are_open = self.are_done = False

    def write(self, elements: list[Element], is_end: bool) -> None:
        """Runs in a thread: append elements; after the last ones the cache is whole.

        Raises:
            AlreadyExistsError: another pass writes this cache.
            OpError: the files cannot be written, or not with these elements.
        """
        with self._lock:
            try:
                self._append(elements)
                if is_end and not self._is_closed and self._bundle is not None:
                    self._bundle.finish()
                    self._bundle = None
                    self.are_done = True
            except BaseException:
                self._discard()
                raise
            if self._is_closed or self.are_done:
                self._discard()

    def _append(self, elements: list[Element]) -> None:
        if self._is_closed:
            return
        self.are_open = True
        if self._bundle is None:
            self._lock_file()
            self._bundle = BundleWriter(self._path)
        for element in elements:
            if self._is_closed:
                return
            for component, value in enumerate(element):
                key = _key(self._number, component, len(self._types))
                self._bundle.add(key, value, self._types[component])
            self._number += 1
            let_others_run()

    def _lock_file(self) -> None:
        with reporting(self._lock_path):
            os.makedirs(os.path.dirname(self._lock_path) or ".", exist_ok=True)
            try:
                descriptor = os.open(self._lock_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                raise errors.AlreadyExistsError(
                    "There appears to be a concurrent caching iterator running - cache lockfile already exists "
                    f"('{self._lock_path}'). If you are sure no other running computations are using this cache "
                    "prefix, delete the lockfile and re-initialize the iterator."
                ) from None
        self._is_locked = True
        with open(descriptor, "w") as file:
            file.write(f"Created at: {int(time.time())}")

    def close(self) -> None:
        """Delete what is not whole, unless a thread writes: then the thread does."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._discard()
            finally:
                self._lock.release()

    def _discard(self) -> None:
        bundle, self._bundle = self._bundle, None
        if bundle is not None:
            bundle.discard()
        if self._is_locked:
            self._is_locked = False
            with contextlib.suppress(OSError):
                os.unlink(self._lock_path)
