"""Allocators: where the memory of arrays comes from, under a name and with statistics.

A device has one, `Device.allocator`.  `OpKernelConstruction`, `OpKernelContext`, and large outputs that kernels make
before they fill them (`kernels/common/allocation.py`) take their memory from it.  Memory that NumPy and CuPy allocate
by themselves, as for the result of `x + y`, is known only afterwards.  Memory is freed when the last array that refers
to it dies; there is no call to free it.

A kernel's call may be watched: within `watching` every allocator is wrapped, for example by one that tracks
allocations.  Next to read: `memory_account.py`, where limits are held.
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

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
    "ReusedScratch",
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
    "watched_elsewhere",
    "watchers",
    "watching",
]

Array = np.ndarray[Any, Any]

T = TypeVar("T")


class AllocatorAttributes(enum.IntFlag):
    """The uses that memory must support.  An output's attributes are the union of its consumers' needs."""

    NONE = 0
    ON_HOST = 1
    NIC_COMPATIBLE = 2
    GPU_COMPATIBLE = 4

    def is_subset_of(self, other: AllocatorAttributes) -> bool:
        """True if memory with the attributes `other` satisfies these."""
        return self | other == other


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """Use of an allocator.

    Attributes:
        num_allocs: the number of allocations so far.
        bytes_in_use, peak_bytes_in_use: bytes in use now, and at most since the statistics were cleared.
        largest_alloc_size: the bytes of the largest allocation.
        bytes_limit: the limit; None if the machine's memory is the only one.
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
        name: the name in statistics and errors.
    """

    name: str
    # True if it can tell the sizes and ids of its allocations.
    tracks_allocation_sizes = False

    @abc.abstractmethod
    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        """A uint8 array of uninitialised memory that begins at a multiple of `alignment`.

        Raises:
            ResourceExhaustedError: there is not enough memory.
        """

    @abc.abstractmethod
    def stats(self) -> AllocatorStats:
        """Statistics of its use."""

    @abc.abstractmethod
    def clear_stats(self) -> None:
        """Start counting allocations and peaks anew."""

    def allocate_tensor(self, shape: Sequence[int], dtype: DType, device: str = "", *, zeros: bool = False) -> Array:
        """An array, uninitialised or of zeros; objects are None.  An array without elements takes no memory.

        Args:
            shape: dimensions.
            dtype: element type.
            device: the device's name, for messages.

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
        """Like `allocate`; with `zeros`, memory that is cleared, by allocators that need not write it."""
        memory = self.allocate(num_bytes, alignment)
        if zeros:
            memory.fill(0)
        return memory

    def requested_size(self, array: Array) -> int:
        """The bytes requested for the array's memory; only if sizes are tracked."""
        raise errors.UnimplementedError(f"allocator {self.name} does not track allocation sizes")

    def allocated_size(self, array: Array) -> int:
        """The bytes taken for it, with alignment; only if sizes are tracked."""
        return self.requested_size(array)

    def allocation_id(self, array: Array) -> int:
        """The number of the allocation, from 1; 0 if it is not from this allocator, or sizes are not tracked."""
        return 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.stats()}>"


class _Allocation(NamedTuple):
    owner: int
    requested: int
    allocated: int
    # Its callback runs when the memory is freed.
    reference: weakref.ref[Array]


class CpuAllocator(Allocator):
    """An allocator of host memory: aligned, counted, with an optional limit.

    Args:
        name: the allocator's name.
        limit_bytes: the most bytes in use; None for no limit.
    """

    tracks_allocation_sizes = True

    def __init__(self, name: str = "cpu", limit_bytes: int | None = None) -> None:
        self.name = name
        self._limit = limit_bytes
        self._lock = threading.RLock()
        # Allocations by number; and numbers by the id of the array that owns the memory.
        self._live: dict[int, _Allocation] = {}
        self._numbers: dict[int, int] = {}
        # The last reference to memory may be dropped anywhere, even while the lock is held.  So freed memory is only
        # noted here, and the next call accounts for it.
        self._dead: deque[int] = deque()
        self._last = itertools.count(1)
        self._in_use = self._peak = self._count = self._largest = 0

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Array:
        """Like `Allocator.allocate`.  Raises ResourceExhaustedError also if the machine has no more memory."""
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
            if self._numbers.get(gone.owner) == number:  # otherwise another array has its address by now
                del self._numbers[gone.owner]


def _address(owner: Array) -> int:
    # Takes half the time of `owner.ctypes.data`.
    return ctypes.addressof(ctypes.c_char.from_buffer(owner.data))


class AllocatorWrapper(Allocator):
    """A wrapper of another allocator, for subclasses that watch it.

    Args:
        allocator: the source of the memory.
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
    """A wrapper of another allocator that records the allocations made through it, of one node for example."""

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
        """The owning arrays of memory that was taken through it and is still in use."""
        return [owner for reference in self._references if (owner := reference()) is not None]

    def used(self) -> proto.AllocatorMemoryUsed:
        """The memory taken through it so far: in total, at most at a time, and still in use."""
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
    """Register an allocator of host memory, which is made at its first use.

    Args:
        name: the name for `get_allocator`.
        make: makes it.
        priority: the allocator of highest priority is `cpu_allocator()`.

    Raises:
        AlreadyExistsError: the name is taken.
    """
    with _lock:
        if name in _makers:
            raise errors.AlreadyExistsError(f"an allocator named '{name}' is registered already")
        _makers[name] = (priority, make)


def get_allocator(name: str) -> Allocator:
    """The process's allocator with this name.  Raises NotFoundError if none is registered."""
    with _lock:
        if name not in _makers:
            raise errors.NotFoundError(f"no allocator named '{name}'; there are {', '.join(_makers)}")
        if name not in _made:
            _made[name] = _makers[name][1]()
        return _made[name]


def allocator_names() -> list[str]:
    """All registered names, in order of priority."""
    return sorted(_makers, key=lambda name: (-_makers[name][0], name))


def cpu_allocator() -> Allocator:
    """The preferred allocator of host memory, wrapped if the running call is watched."""
    return watched(get_allocator(allocator_names()[0]))


# Watching


class AllocationWatcher(Protocol):
    """Sees what a call allocates."""

    def wrap(self, allocator: Allocator) -> Allocator:
        """Return the allocator that the call gets in place of another.  Called for each request, from any thread."""
        ...

    def announce(self, num_bytes: int) -> None:
        """Note that the call is about to make an array of this size without an allocator.

        Raises:
            ResourceExhaustedError: the memory is refused.
        """
        ...

    def announce_scratch(self, num_bytes: int) -> None:
        """Note that the call is about to take scratch memory of this size; raises as `announce`."""
        ...

    def kept(self, array: Array) -> None:
        """Note that the call keeps an array for later calls (`allocate_persistent`, the value of a variable)."""
        ...

    def is_scratch(self, array: Array) -> None:
        """Note that an array is the call's scratch memory (`OpKernelContext.allocate_temp`)."""
        ...

    def of_part(self) -> AbstractContextManager[AllocationWatcher]:
        """Context manager: the watcher of a part of the call that another thread makes, and that may end after it."""
        ...


# The number of watched calls, in all threads and tasks; while it is 0, `watchers` need not be called.
WATCHED_CALLS = [0]
# The number of watched calls whose every allocation is seen, however small.
TRACKED_CALLS = [0]
# The watchers of this thread or task, the innermost last.
_watchers: ContextVar[tuple[AllocationWatcher, ...]] = ContextVar("aexec_allocation_watchers", default=())


def watched(allocator: Allocator) -> Allocator:
    """An allocator, wrapped by the watchers of the running call."""
    found = _watchers.get()
    if not found and _otherwise is not None:
        return _otherwise.wrap(allocator)
    for watcher in found:
        allocator = watcher.wrap(allocator)
    return allocator


# The watcher of allocations that no other watcher sees.
_otherwise: AllocationWatcher | None = None


def watch_the_rest(watcher: AllocationWatcher) -> None:
    """Let `watcher` see the allocations that no other watcher sees."""
    global _otherwise
    _otherwise = watcher


def watchers() -> tuple[AllocationWatcher, ...]:
    """The watchers of the running call, the innermost last."""
    return _watchers.get()


def announce(num_bytes: int) -> None:
    """Tell the watchers that the running call is about to take memory that comes from no allocator.

    Raises:
        ResourceExhaustedError: the memory is refused.
    """
    if WATCHED_CALLS[0]:
        for watcher in _watchers.get():
            watcher.announce(num_bytes)


def note_kept(array: Array) -> None:
    """Tell the watchers that the running call keeps an array for later calls."""
    if WATCHED_CALLS[0]:
        for watcher in _watchers.get():
            watcher.kept(array)


def announce_scratch(num_bytes: int) -> None:
    """Tell the watchers that the running call is about to take scratch memory from no allocator.

    It counts until the call ends.

    Raises:
        ResourceExhaustedError: the memory is refused.
    """
    if WATCHED_CALLS[0]:
        for watcher in _watchers.get():
            watcher.announce_scratch(num_bytes)


class ReusedScratch:
    """Announces the scratch memory of a call that works in parts.  Each part frees its memory before the next begins.

    It counts the most that one of them takes, until the call ends.
    """

    __slots__ = ("_room",)

    def __init__(self) -> None:
        self._room = 0

    def announce(self, num_bytes: int) -> None:
        """Note that the next part is about to take these bytes.  Raises ResourceExhaustedError if they are refused."""
        if num_bytes > self._room:
            announce_scratch(num_bytes - self._room)
            self._room = num_bytes


# Fewest bytes to announce at a time; for less it is not worth asking the system for its free memory.
_ANNOUNCED = 1 << 20
_UNCHECKED = 128 << 20


class Growth:
    """Announces memory that a call makes piece by piece, when the total is not known before.

    Args:
        joined: True if the pieces are joined in the end, and so exist twice for a while.
    """

    __slots__ = ("_announced", "_joined", "_made")

    def __init__(self, *, joined: bool = False) -> None:
        self._made = 0
        self._announced = 2 * _ANNOUNCED if joined else 0
        self._joined = joined

    def add(self, num_bytes: int) -> None:
        """Count more bytes.  Raises ResourceExhaustedError if they are refused."""
        self._made += num_bytes
        if self._made <= self._announced:
            return
        # Joined pieces exist twice anyway, so a quarter more may come before the next announcement.
        self._announced = self._made + max(_ANNOUNCED, self._made // 4 if self._joined else 0)
        announce(2 * self._announced if self._joined else self._made)
        if self._made > _UNCHECKED and (1 + self._joined) * self._announced > available_memory():
            raise errors.ResourceExhaustedError(f"OOM when allocating strings of {self._made} bytes, and more to come")


def watching(watcher: AllocationWatcher, *, every: bool = True) -> AbstractContextManager[None]:
    """Context manager: inside, in this thread or task alone, `watcher` and the watchers around it see allocations.

    Args:
        every: True to see small arrays too, which kernels otherwise make without an allocator; costs microseconds.
    """
    return _watching((*_watchers.get(), watcher), every=every)


@contextmanager
def _watching(watchers: tuple[AllocationWatcher, ...], *, every: bool) -> Iterator[None]:
    token = _watchers.set(watchers)
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


def watched_elsewhere(call: Callable[..., T]) -> Callable[..., T]:
    """Return `call`, as a part of the running call, for another thread: this call's watchers see what it allocates."""
    whole = _watchers.get()
    if not whole:
        return call

    def part(*args: Any) -> T:
        with ExitStack() as parts:
            watchers = tuple([parts.enter_context(watcher.of_part()) for watcher in whole])
            with _watching(watchers, every=False):
                return call(*args)

    return part


class TrackedAllocations:
    """A watcher that records the allocations of a call.

    Attributes:
        wrapped_allocators: the allocators that it used, by name.
        temp_bytes: the bytes of its scratch memory.
        persistent_bytes, persistent_ids: the bytes that it keeps, and the numbers of these allocations.
    """

    def __init__(self) -> None:
        self.wrapped_allocators: dict[str, TrackingAllocator] = {}
        self.temp_bytes = self.persistent_bytes = 0
        self.persistent_ids: list[int] = []

    def wrap(self, allocator: Allocator) -> TrackingAllocator:
        found = self.wrapped_allocators.get(allocator.name)
        return found or self.wrapped_allocators.setdefault(allocator.name, TrackingAllocator(allocator))

    def announce(self, num_bytes: int) -> None:
        """Do nothing: memory is recorded when it is there."""

    def announce_scratch(self, num_bytes: int) -> None:
        self.temp_bytes += num_bytes

    def kept(self, array: Array) -> None:
        self.persistent_bytes += array.nbytes
        self.persistent_ids.append(allocation_id(array))

    def is_scratch(self, array: Array) -> None:
        self.temp_bytes += array.nbytes

    def of_part(self) -> AbstractContextManager[AllocationWatcher]:
        return nullcontext(self)

    def used(self) -> tuple[proto.AllocatorMemoryUsed, ...]:
        """The memory taken from each allocator; see `TrackingAllocator.used`."""
        return tuple([wrapped.used() for wrapped in self.wrapped_allocators.values()])


@contextmanager
def tracking_allocations() -> Iterator[TrackedAllocations]:
    """Context manager: records the allocations in this thread or task."""
    tracked = TrackedAllocations()
    with watching(tracked):
        yield tracked


register_allocator("cpu", CpuAllocator)
