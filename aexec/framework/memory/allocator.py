"""Allocators: where the memory of arrays comes from, under a name and with statistics.

A device has one, `Device.allocator`; `OpKernelConstruction`, `OpKernelContext` and the large outputs that kernels
make before they fill them (`kernels/common/allocation.py`) take their memory from it.  What NumPy and CuPy make of
their own, as the result of `x + y`, comes from them: it is known only once it is there.  Memory goes back when the
last array that refers to it dies; there is no call to free it.

A call of a kernel may be watched: within `watching` every allocator is seen through a wrapper, that tracks what is
taken, say.  Next to read: `memory_account.py`, where limits are held.
"""

from __future__ import annotations

import abc
import ctypes
import enum
import itertools
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.memory import available_memory
from aexec.framework.memory.tensor_buffer import ALIGNMENT, allocation_id, buffer_of
from aexec.framework.shape import shape_text

__all__ = [
    "TRACKED_CALLS",
    "WATCHED_CALLS",
    "AllocationWatcher",
    "Allocator",
    "AllocatorAttributes",
    "AllocatorStats",
    "AllocatorWrapper",
    "CpuAllocator",
    "Growth",
    "TrackedAllocations",
    "TrackingAllocator",
    "allocator_names",
    "announce",
    "announce_scratch",
    "cpu_allocator",
    "get_allocator",
    "note_kept",
    "register_allocator",
    "tracking_allocations",
    "watch_the_rest",
    "watched",
    "watchers",
    "watching",
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

    def allocate_tensor(self, shape: Sequence[int], dtype: DType, device: str = "", *, zeros: bool = False) -> Array:
        """An array, uninitialised or of zeros.  Of no elements it needs no memory; elements that are objects are None.

        Args:
            shape: dimensions.
            dtype: element type.
            device: for the message.

        Raises:
            ResourceExhaustedError: there is not enough memory.
        """
        elements = math.prod(shape)
        if elements == 0 or not dtype.is_simple:
            return np.empty(shape, dtype.np)
        try:
            memory = self._allocate(elements * dtype.np.itemsize, ALIGNMENT, zeros=zeros)
        except (errors.ResourceExhaustedError, MemoryError) as error:
            where = f" on {device}" if device else ""
            raise errors.ResourceExhaustedError(
                f"OOM when allocating tensor with shape{shape_text(shape)} and type {dtype}{where} "
                f"by allocator {self.name}: {error}"
            ) from None
        return np.ndarray(shape, dtype.np, memory)

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Array:
        """As `allocate`; cleared if wanted, by allocators that do so better than by writing."""
        memory = self.allocate(num_bytes, alignment)
        if zeros:
            memory.fill(0)
        return memory

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


class _Allocation(NamedTuple):
    owner: int
    requested: int
    allocated: int
    # Its callback tells when the memory is gone.
    reference: weakref.ref[Array]


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
        # By the allocation's number, and the number by the identity of the array that owns the memory.
        self._live: dict[int, _Allocation] = {}
        self._numbers: dict[int, int] = {}
        # Memory dies wherever its last reference is dropped, maybe while the lock is held, so its
        # death is only noted here and accounted for by the next call.
        self._dead: deque[int] = deque()
        self._last = itertools.count(1)
        self._in_use = self._peak = self._count = self._largest = 0

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        """As `Allocator.allocate`.  Raises ResourceExhaustedError also where the machine has no more memory."""
        return self._allocate(num_bytes, alignment, zeros=False)

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Array:
        wanted = num_bytes + alignment
        with self._lock:
            if self._dead:
                self._account_for_dead()
            in_use = self._in_use + num_bytes
            if self._limit is not None and in_use > self._limit:
                raise errors.ResourceExhaustedError(
                    f"{num_bytes} bytes wanted, {self._in_use} of {self._limit} bytes in use"
                )
            try:
                owner = np.zeros(wanted, np.uint8) if zeros else np.empty(wanted, np.uint8)
            except (MemoryError, ValueError, OverflowError) as error:
                raise errors.ResourceExhaustedError(str(error)) from None
            number, key = next(self._last), id(owner)
            reference = weakref.ref(owner, lambda _: self._dead.append(number))
            self._live[number] = _Allocation(key, num_bytes, wanted, reference)
            self._numbers[key] = number
            self._in_use = in_use
            self._count += 1
            if in_use > self._peak:
                self._peak = in_use
            if num_bytes > self._largest:
                self._largest = num_bytes
        start = -_address(owner) % alignment
        return owner[start : start + num_bytes]

    def stats(self) -> AllocatorStats:
        with self._lock:
            self._account_for_dead()
            return AllocatorStats(self._count, self._in_use, self._peak, self._largest, self._limit)

    def clear_stats(self) -> None:
        with self._lock:
            self._account_for_dead()
            self._count = self._largest = 0
            self._peak = self._in_use

    def requested_size(self, array: Array) -> int:
        return self._allocation(array).requested

    def allocated_size(self, array: Array) -> int:
        return self._allocation(array).allocated

    def allocation_id(self, array: Array) -> int:
        number = self._numbers.get(id(buffer_of(array)), 0)
        found = self._live.get(number)
        return 0 if found is None or found.reference() is None else number

    def _allocation(self, array: Array) -> _Allocation:
        number = self.allocation_id(array)
        if number == 0:
            raise errors.InvalidArgumentError(f"the array's memory is not from allocator {self.name}")
        return self._live[number]

    def _account_for_dead(self) -> None:
        while self._dead:
            number = self._dead.popleft()
            gone = self._live.pop(number)
            self._in_use -= gone.requested
            if self._numbers.get(gone.owner) == number:  # else another one is at its address by now
                del self._numbers[gone.owner]


def _address(owner: Array) -> int:
    # In half the time of `owner.ctypes.data`.
    return ctypes.addressof(ctypes.c_char.from_buffer(owner.data))


class AllocatorWrapper(Allocator):
    """Another allocator, watched by a subclass.

    Args:
        allocator: where the memory comes from.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.name = allocator.name
        self.tracks_allocation_sizes = allocator.tracks_allocation_sizes
        self._allocator = allocator

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        return self._allocate(num_bytes, alignment, zeros=False)

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Array:
        return self._allocator._allocate(num_bytes, alignment, zeros=zeros)

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


class TrackingAllocator(AllocatorWrapper):
    """Another allocator, with a record of what was taken through this one: of one node, say."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__(allocator)
        # Changes in bytes, with the time in microseconds since the epoch; appended to from any thread.
        self._records: list[tuple[int, int]] = []
        self._references: list[weakref.ref[Array]] = []

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Array:
        memory = super()._allocate(num_bytes, alignment, zeros=zeros)
        self._records.append((_micros(), num_bytes))
        self._references.append(weakref.ref(buffer_of(memory), lambda _: self._records.append((_micros(), -num_bytes))))
        return memory

    def live(self) -> list[Array]:
        """The owners of memory that was taken through it and is still in use."""
        return [owner for reference in self._references if (owner := reference()) is not None]

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
    """The preferred allocator of host memory; wrapped while the call that asks is watched."""
    return watched(get_allocator(allocator_names()[0]))


# Watching


class AllocationWatcher(Protocol):
    """Sees what a call allocates."""

    def wrap(self, allocator: Allocator) -> Allocator:
        """What the call gets in place of an allocator.  Called whenever one is asked for, from any thread."""
        ...

    def announce(self, num_bytes: int) -> None:
        """The call is about to make something of so many bytes elsewhere.

        Raises:
            ResourceExhaustedError: it must not.
        """
        ...

    def announce_scratch(self, num_bytes: int) -> None:
        """The call is about to need so many bytes more while it lasts, besides its outputs; raises as `announce`."""
        ...

    def kept(self, array: Array) -> None:
        """The call keeps this array for later ones (`OpKernelContext.allocate_persistent`, the value of a variable)."""
        ...

    def is_scratch(self, array: Array) -> None:
        """The call needs this array for itself alone (`OpKernelContext.allocate_temp`)."""
        ...


# How many calls are watched, in all threads and tasks: while it is 0 nobody need ask for `watchers`.
WATCHED_CALLS = [0]
# Of how many of them every allocation is to be seen, however small.
TRACKED_CALLS = [0]
# Who watches what runs in this thread or task, the innermost last.
_watchers: ContextVar[tuple[AllocationWatcher, ...]] = ContextVar("aexec_allocation_watchers", default=())


def watched(allocator: Allocator) -> Allocator:
    """An allocator as whoever watches the running call wants it to be seen."""
    found = _watchers.get()
    if not found and _otherwise is not None:
        return _otherwise.wrap(allocator)
    for watcher in found:
        allocator = watcher.wrap(allocator)
    return allocator


# Sees what is allocated where nobody watches.
_otherwise: AllocationWatcher | None = None


def watch_the_rest(watcher: AllocationWatcher) -> None:
    """Let `watcher` see what is allocated where nobody else watches."""
    global _otherwise
    _otherwise = watcher


def watchers() -> tuple[AllocationWatcher, ...]:
    """Who watches the running call, the innermost last."""
    return _watchers.get()


def announce(num_bytes: int) -> None:
    """The running call is about to have made so many bytes that come from no allocator; whoever watches it is told.

    Raises:
        ResourceExhaustedError: it must not.
    """
    if WATCHED_CALLS[0]:
        for watcher in _watchers.get():
            watcher.announce(num_bytes)


def note_kept(array: Array) -> None:
    """The running call keeps an array for later ones; whoever watches it is told."""
    if WATCHED_CALLS[0]:
        for watcher in _watchers.get():
            watcher.kept(array)


def announce_scratch(num_bytes: int) -> None:
    """The running call is about to need so many bytes more of its own, from no allocator, besides what it gives.

    They count until it ends.

    Raises:
        ResourceExhaustedError: it must not.
    """
    if WATCHED_CALLS[0]:
        for watcher in _watchers.get():
            watcher.announce_scratch(num_bytes)


# Bytes that are announced at a time, at least; and below which asking the system for its memory is not worth it.
_ANNOUNCED = 1 << 20
_UNCHECKED = 128 << 20


class Growth:
    """What a call makes piece by piece, and how much it will be nobody knows: it is announced now and then.

    Args:
        joined: the pieces are joined in the end, and there twice meanwhile.
    """

    __slots__ = ("_announced", "_joined", "_made")

    def __init__(self, *, joined: bool = False) -> None:
        self._made = 0
        self._announced = 2 * _ANNOUNCED if joined else 0
        self._joined = joined

    def add(self, num_bytes: int) -> None:
        """So many bytes more.  Raises ResourceExhaustedError if there is no room for them."""
        self._made += num_bytes
        if self._made <= self._announced:
            return
        # What is joined is held twice in any case: a quarter of it more may come before it is asked again.
        self._announced = self._made + max(_ANNOUNCED, self._made // 4 if self._joined else 0)
        announce(2 * self._announced if self._joined else self._made)
        if self._made > _UNCHECKED and (1 + self._joined) * self._announced > available_memory():
            raise errors.ResourceExhaustedError(f"OOM when allocating strings of {self._made} bytes, and more to come")


@contextmanager
def watching(watcher: AllocationWatcher, *, every: bool = True) -> Iterator[None]:
    """Within, in this thread or task alone, allocators are wrapped by `watcher`, and by those around it.

    Args:
        every: see small arrays too, which kernels otherwise make without an allocator: that takes microseconds.
    """
    token = _watchers.set((*_watchers.get(), watcher))
    with _lock:
        WATCHED_CALLS[0] += 1
        TRACKED_CALLS[0] += every
    try:
        yield
    finally:
        _watchers.reset(token)
        with _lock:
            WATCHED_CALLS[0] -= 1
            TRACKED_CALLS[0] -= every


class TrackedAllocations:
    """A watcher that notes what a call took.

    Attributes:
        wrapped_allocators: those that it used, by name.
        temp_bytes: of what it needed for itself alone.
        persistent_bytes, persistent_ids: of what it keeps, and the allocations' numbers.
    """

    def __init__(self) -> None:
        self.wrapped_allocators: dict[str, TrackingAllocator] = {}
        self.temp_bytes = self.persistent_bytes = 0
        self.persistent_ids: list[int] = []

    def wrap(self, allocator: Allocator) -> TrackingAllocator:
        found = self.wrapped_allocators.get(allocator.name)
        return found or self.wrapped_allocators.setdefault(allocator.name, TrackingAllocator(allocator))

    def announce(self, num_bytes: int) -> None:
        """It is noted once it is there."""

    def announce_scratch(self, num_bytes: int) -> None:
        self.temp_bytes += num_bytes

    def kept(self, array: Array) -> None:
        self.persistent_bytes += array.nbytes
        self.persistent_ids.append(allocation_id(array))

    def is_scratch(self, array: Array) -> None:
        self.temp_bytes += array.nbytes

    def used(self) -> tuple[proto.AllocatorMemoryUsed, ...]:
        """Of each allocator that was used, what was taken; see `TrackingAllocator.used`."""
        return tuple([wrapped.used() for wrapped in self.wrapped_allocators.values()])


@contextmanager
def tracking_allocations() -> Iterator[TrackedAllocations]:
    """Within, in this thread or task alone, it is noted what is taken of any allocator."""
    tracked = TrackedAllocations()
    with watching(tracked):
        yield tracked


register_allocator("cpu", CpuAllocator)
