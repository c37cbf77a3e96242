"""Datasets that keep the elements of the first pass, in memory or in files, and give them in all later ones."""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.kernels.common.handles import anonymous, delete_by_handle
from aexec.kernels.datasets.arguments import Made, text
from aexec.kernels.datasets.file_cache import FileCached
from aexec.resources.datasets.dataset import Dataset, DatasetIterator, Element, Pass, dataset_of


class MemoryCache:
    """The elements of a dataset; complete once a pass has come to the end."""

    def __init__(self) -> None:
        self.elements: list[Element] | None = None

    def __repr__(self) -> str:
        return "<MemoryCache>" if self.elements is None else f"<MemoryCache of {len(self.elements)} elements>"


class _Cached(DatasetIterator):
    """Reads the cache if it is complete when it begins; else it reads the input, and fills the cache at its end."""

    __slots__ = ("_cache", "_filled", "_next", "_pass", "_source")

    def __init__(self, one: Pass, source: Dataset, cache: MemoryCache) -> None:
        self._pass = one
        self._cache = cache
        self._next = 0
        self._filled: list[Element] = []
        self._source = one.begin(source) if cache.elements is None else None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._source is not None:
            element = await self._source.next(context)
            if element is not None:
                self._filled.append(self._pass.keep(element))
                return element
            if self._cache.elements is None:
                self._cache.elements = self._filled
            self._source = None
            self._next = len(self._filled)
        elements = self._cache.elements
        if elements is None or self._next >= len(elements):
            return None
        self._next += 1
        return elements[self._next - 1]


def _in_files(c: OpKernelConstruction, made: Made, source: Dataset, path: bytes) -> Any:
    """The node's output: a dataset that is cached in files.

    Raises:
        PermissionDeniedError: the session's settings do not allow it.
    """
    if not c.cache_files:
        raise errors.PermissionDeniedError(
            "A cache of a dataset in files is not allowed here (SessionConfig.cache_files); leave the filename empty "
            "for a cache in memory"
        )
    return made.of(lambda one: FileCached(one, source, path), source.cardinality())


@kernel("CacheDataset", cost=0)
def cache_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, filename: Any) -> Any:
        source, key = dataset_of(tensor), object()
        if path := text(filename, "filename"):
            return _in_files(c, made, source, path)
        return made.of(lambda one: _Cached(one, source, one.state(key, MemoryCache)), source.cardinality())

    return compute


@kernel("CacheDatasetV2", cost=0)
def cache_dataset_of_resource(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    c.need_context()

    def compute(context: OpKernelContext, tensor: Any, filename: Any, handle: Any) -> Any:
        source = dataset_of(tensor)
        if path := text(filename, "filename"):
            return _in_files(c, made, source, path)
        cache = context.resources.lookup_handle(handle_from_tensor(handle, MemoryCache), MemoryCache)
        return made.of(lambda one: _Cached(one, source, cache), source.cardinality())

    return compute


@kernel("AnonymousMemoryCache", "DummyMemoryCache", cost=0)
def anonymous_memory_cache(c: OpKernelConstruction) -> Compute:
    return anonymous(c, MemoryCache, MemoryCache)


@kernel("DeleteMemoryCache", cost=0)
def delete_memory_cache(c: OpKernelConstruction) -> Compute:
    return delete_by_handle(c, MemoryCache)
