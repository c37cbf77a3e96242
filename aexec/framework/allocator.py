"""Allocators: where the memory of arrays comes from, under a name and with statistics.

Kernels get most of their memory from NumPy and CuPy themselves.  An allocator serves
those who want aligned memory, a limit, or to know what is in use.  Memory goes back
when the last array that refers to it dies; there is no call to free it.
"""

from __future__ import annotations

import abc
import enum
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import shape_text
from aexec.framework.tensor_buffer import ALIGNMENT, buffer_of

__all__ = [
    "Allocator",
    "AllocatorAttributes",
    "AllocatorStats",
    "CpuAllocator",
    "TrackingAllocator",
    "allocator_names",
    "cpu_allocator",
    "get_allocator",
    "register_allocator",
    "tracking_allocations",
]

Array = np.ndarray[Any, Any]


class AllocatorAttributes(enum.IntFlag):
    """What memory has to be fit for.  Those of an output are the union of what its consumers need."""

    NONE = 0
    ON_HOST = 1
    NIC_COMPATIBLE = 2
    GPU_COMPATIBLE = 4

    def is_subset_of(self, other: AllocatorAttributes) -> bool:
        """Does memory with the attributes `other` do for this?"""
        return self | other == other


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """Use of an allocator.

    Attributes:
        num_allocs: allocations ever made.
        bytes_in_use, peak_bytes_in_use: now, and at most since the statistics were cleared.
        largest_alloc_size: bytes of the largest allocation.
        bytes_limit: None if there is none but the machine's.
    """

    num_allocs: int = 0
    bytes_in_use: int = 0
    peak_bytes_in_use: int = 0
    largest_alloc_size: int = 0
    bytes_limit: int | None = None

    def __str__(self) -> str:
        limit = "none" if self.bytes_limit is None else str(self.bytes_limit)
        return (
            f"Limit: {limit}, InUse: {self.bytes_in_use}, MaxInUse: {self.peak_bytes_in_use}, "
            f"NumAllocs: {self.num_allocs}, MaxAllocSize: {self.largest_alloc_size}"
        )


class Allocator(abc.ABC):
    """A source of memory.  Any thread may allocate.

    Attributes:
        name: as statistics and errors print it.
    """

    name: str
    # Can the sizes and ids of its allocations be asked for?
    tracks_allocation_sizes = False

    @abc.abstractmethod
    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        """A uint8 array of uninitialised memory that begins at a multiple of `alignment`.

        Raises:
            ResourceExhaustedError: there is not as much.
        """

    @abc.abstractmethod
    def stats(self) -> AllocatorStats:
        """Its use."""

    @abc.abstractmethod
    def clear_stats(self) -> None:
        """Count allocations and peaks anew."""

    def allocate_tensor(self, shape: Sequence[int], dtype: DType, device: str = "") -> Array:
        """An uninitialised array.  Of no elements it needs no memory; elements that are objects are None.

        Args:
            shape: dimensions.
            dtype: element type.
            device: for the message.

        Raises:
            ResourceExhaustedError: there is not enough memory.
        """
        elements = int(np.prod(shape, dtype=object))
        if elements == 0 or not dtype.is_simple:
            return np.empty(shape, dtype.np)
        try:
            memory = self.allocate(elements * dtype.np.itemsize)
        except (errors.ResourceExhaustedError, MemoryError) as error:
            where = f" on {device}" if device else ""
            raise errors.ResourceExhaustedError(
                f"OOM when allocating tensor with shape{shape_text(shape)} and type {dtype}{where} "
                f"by allocator {self.name}: {error}"
            ) from None
        tensor: Array = memory.view(dtype.np).reshape(shape)
        return tensor

    def requested_size(self, array: Array) -> int:
        """Bytes asked for when the array's memory was allocated; only if sizes are tracked."""
        raise errors.UnimplementedError(f"allocator {self.name} does not track allocation sizes")

    def allocated_size(self, array: Array) -> int:
        """Bytes taken for it, alignment included; only if sizes are tracked."""
        return self.requested_size(array)

    def allocation_id(self, array: Array) -> int:
        """Number of the allocation, from 1; 0 if it is not one of this allocator's, or they are not counted."""
        return 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.stats()}>"


@dataclass(frozen=True, slots=True)
class _Allocation:
    number: int
    requested: int
    allocated: int
    # Its callback tells when the memory is gone.
    owner: weakref.ref[Array]


class CpuAllocator(Allocator):
    """Host memory, aligned, counted, and limited if wanted.

    Args:
        name: of the allocator.
        limit_bytes: most that may be in use; None for no limit.
    """

    tracks_allocation_sizes = True

    def __init__(self, name: str = "cpu", limit_bytes: int | None = None) -> None:
        self.name = name
        self._limit = limit_bytes
        self._lock = threading.RLock()
        self._live: dict[int, _Allocation] = {}
        # Memory dies wherever its last reference is dropped, maybe while the lock is held, so its
        # death is only noted here and accounted for by the next call.
        self._dead: deque[int] = deque()
        self._numbers = itertools.count(1)
        self._in_use = 0
        self._stats = AllocatorStats(bytes_limit=limit_bytes)

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        """As `Allocator.allocate`.  Raises ResourceExhaustedError also where the machine has no more memory."""
        wanted = num_bytes + alignment
        with self._lock:
            self._account_for_dead()
            if self._limit is not None and self._in_use + num_bytes > self._limit:
                raise errors.ResourceExhaustedError(
                    f"{num_bytes} bytes wanted, {self._in_use} of {self._limit} bytes in use"
                )
            try:
                owner = np.empty(wanted, np.uint8)
            except MemoryError as error:
                raise errors.ResourceExhaustedError(str(error)) from None
            key = id(owner)
            reference = weakref.ref(owner, lambda _: self._dead.append(key))
            self._live[key] = _Allocation(next(self._numbers), num_bytes, wanted, reference)
            self._in_use += num_bytes
            old = self._stats
            self._stats = AllocatorStats(
                old.num_allocs + 1,
                self._in_use,
                max(old.peak_bytes_in_use, self._in_use),
                max(old.largest_alloc_size, num_bytes),
                self._limit,
            )
        start = -owner.ctypes.data % alignment
        return owner[start : start + num_bytes]

    def stats(self) -> AllocatorStats:
        with self._lock:
            self._account_for_dead()
            old = self._stats
            return AllocatorStats(
                old.num_allocs, self._in_use, old.peak_bytes_in_use, old.largest_alloc_size, self._limit
            )

    def clear_stats(self) -> None:
        with self._lock:
            self._account_for_dead()
            self._stats = AllocatorStats(0, self._in_use, self._in_use, 0, self._limit)

    def requested_size(self, array: Array) -> int:
        return self._allocation(array).requested

    def allocated_size(self, array: Array) -> int:
        return self._allocation(array).allocated

    def allocation_id(self, array: Array) -> int:
        found = self._live.get(id(buffer_of(array)))
        return 0 if found is None else found.number

    def _allocation(self, array: Array) -> _Allocation:
        found = self._live.get(id(buffer_of(array)))
        if found is None:
            raise errors.InvalidArgumentError(f"the array's memory is not from allocator {self.name}")
        return found

    def _account_for_dead(self) -> None:
        while self._dead:
            self._in_use -= self._live.pop(self._dead.popleft()).requested


class TrackingAllocator(Allocator):
    """Another allocator, with a record of what was taken through this one: of one node, say.

    Args:
        allocator: where the memory comes from.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.name = allocator.name
        self.tracks_allocation_sizes = allocator.tracks_allocation_sizes
        self._allocator = allocator
        # Changes in bytes, with the time in microseconds since the epoch; appended to from any thread.
        self._records: list[tuple[int, int]] = []
        self._references: list[weakref.ref[Array]] = []

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        memory = self._allocator.allocate(num_bytes, alignment)
        self._records.append((_micros(), num_bytes))
        self._references.append(weakref.ref(buffer_of(memory), lambda _: self._records.append((_micros(), -num_bytes))))
        return memory

    def stats(self) -> AllocatorStats:
        return self._allocator.stats()

    def clear_stats(self) -> None:
        self._allocator.clear_stats()

    def requested_size(self, array: Array) -> int:
        return self._allocator.requested_size(array)

    def allocated_size(self, array: Array) -> int:
        return self._allocator.allocated_size(array)

    def allocation_id(self, array: Array) -> int:
        return self._allocator.allocation_id(array)

    def used(self) -> proto.AllocatorMemoryUsed:
        """What was taken through this allocator so far: in all, at most at a time, and what is left of it."""
        records = list(self._records)
        live = peak = total = 0
        for _, change in records:
            live += change
            peak = max(peak, live)
            total += max(change, 0)
        return proto.AllocatorMemoryUsed(
            allocator_name=self.name,
            total_bytes=total,
            peak_bytes=peak,
            live_bytes=live,
            allocator_bytes_in_use=self._allocator.stats().bytes_in_use,
            allocation_records=[
                proto.AllocationRecord(alloc_micros=moment, alloc_bytes=change) for moment, change in records
            ],
        )


def _micros() -> int:
    return time.time_ns() // 1000


# Registry

_lock = threading.Lock()
_makers: dict[str, tuple[int, Callable[[], Allocator]]] = {}
_made: dict[str, Allocator] = {}


def register_allocator(name: str, make: Callable[[], Allocator], priority: int = 0) -> None:
    """Offer an allocator of host memory; it is made when it is first wanted.

    Args:
        name: to ask for it by.
        make: makes it.
        priority: that of the highest becomes `cpu_allocator()`.

    Raises:
        AlreadyExistsError: there is one of that name.
    """
    with _lock:
        if name in _makers:
            raise errors.AlreadyExistsError(f"an allocator named '{name}' is registered already")
        _makers[name] = (priority, make)


def get_allocator(name: str) -> Allocator:
    """The process's allocator of that name.  Raises NotFoundError if none is registered."""
    with _lock:
        if name not in _makers:
            raise errors.NotFoundError(f"no allocator named '{name}'; there are {', '.join(_makers)}")
        if name not in _made:
            _made[name] = _makers[name][1]()
        return _made[name]


def allocator_names() -> list[str]:
    """All names, those of the highest priority first."""
    return sorted(_makers, key=lambda name: (-_makers[name][0], name))


def cpu_allocator() -> Allocator:
    """The preferred allocator of host memory; wrapped by a tracking one within `tracking_allocations`."""
    return _tracking.get() or get_allocator(allocator_names()[0])


# What the call that is being traced allocates from.
_tracking: ContextVar[TrackingAllocator | None] = ContextVar("aexec_tracking_allocator", default=None)


@contextmanager
def tracking_allocations() -> Iterator[TrackingAllocator]:
    """Within, `cpu_allocator()` is this one, in this thread or task alone: it notes what is taken."""
    allocator = TrackingAllocator(cpu_allocator())
    token = _tracking.set(allocator)
    try:
        yield allocator
    finally:
        _tracking.reset(token)


register_allocator("cpu", CpuAllocator)
