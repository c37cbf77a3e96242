"""Caches of datasets in files: TensorFlow's, which are tensor bundles with a key for each component of each element.

The bundle is there when its index is, which is renamed into place when a pass has come to the end.  A pass that ends
before leaves nothing.  While a pass writes, a lock file keeps others from writing the same cache.
Next to read: `aexec/io/tensor_bundle.py`.
"""

from __future__ import annotations

import contextlib
import os
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
from aexec.resources.datasets.written_elements import ElementFiles, WrittenElements

__all__ = ["FileCached"]


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
        files = _Files(self._path, self._source.types)
        return WrittenElements(self._pass, self._pass.begin(self._source), files)


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


class _Files(ElementFiles):
    """The files of a cache that is written, with its lock file."""

    def __init__(self, path: str, types: tuple[DType, ...]) -> None:
        super().__init__()
        self._path = path
        self._lock_path = f"{path}_0.lockfile"
        self._types = types
        self._number = 0
        self._bundle: BundleWriter | None = None
        self._is_locked = False

    def append(self, elements: list[Element]) -> None:
        """Raises AlreadyExistsError if another pass writes this cache, and as `ElementFiles.append`."""
        if self._bundle is None:
            self._lock_file()
            self._bundle = BundleWriter(self._path)
        for element in elements:
            if self.is_closed:
                return
            for component, value in enumerate(element):
                key = _key(self._number, component, len(self._types))
                self._bundle.add(key, value, self._types[component])
            self._number += 1
            let_others_run()

    def finish(self) -> None:
        assert self._bundle is not None
        self._bundle.finish()
        self._bundle = None
        self.discard()

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

    def discard(self) -> None:
        bundle, self._bundle = self._bundle, None
        if bundle is not None:
            bundle.discard()
        if self._is_locked:
            self._is_locked = False
            with contextlib.suppress(OSError):
                os.unlink(self._lock_path)
