"""A stand-in for CuPy with streams, events, pools and pinned memory: `fake_cupy()` makes one, with its own GPUs.

Its arrays are those of `strict_arrays.py`, computed when a kernel is called. `StreamChecker` nevertheless checks the
order between streams: it is an error if a kernel or copy reads what another stream writes without waiting for its
event, or if memory returns to the pool, or is read by the host, before its streams have passed it. A copy to the host
holds garbage until its stream reaches it.

A stream can be held (`Stream.hold`): what is queued on it, and on streams that wait for its events, happens when it is
released, in order, so that tests see who waits and who does not.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from aexec.devices.cuda_device import CudaDevice
from aexec.devices.device_registry import DeviceFactory
from aexec.devices.stream_checker import Clock, StreamChecker, TrackedBuffer
from aexec.framework.memory.tensor_buffer import buffer_of
from tests.support.stand_ins import strict_arrays
from tests.support.stand_ins.strict_arrays import strict

__all__ = ["fake_cupy", "gpu_factory"]


# Memory of each GPU in bytes.
MEMORY = 1 << 30
# Allocations are rounded up to multiples of this.
_ROUNDED = 512
_GARBAGE = 0xA5
_NOT_CAPTURED, _INVALIDATED = 900, 901


class CUDARuntimeError(RuntimeError):
    """As `cupy.cuda.runtime.CUDARuntimeError`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: an error of the device")
        self.status = status


class OutOfMemoryError(MemoryError):
    """As `cupy.cuda.memory.OutOfMemoryError`."""


# Streams and events


class Stream:
    """Executes what is queued on it in order: at once, unless the stream is held or waits."""

    def __init__(self, gpus: Gpus, *, non_blocking: bool = False, name: str = "") -> None:
        self.ptr = id(self)
        self.name = name or f"stream {len(gpus.streams)}"
        self.clock = gpus.checker.new_stream(self.name)
        self.waited_for: list[Event] = []
        self.is_blocking = not non_blocking
        self._gpus = gpus
        self._held = False
        self._error: CUDARuntimeError | None = None
        self._queue: deque[Callable[[], bool]] = deque()
        gpus.streams.append(self)

    def __enter__(self) -> Stream:
        self._gpus.stack().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._gpus.stack().pop()

    def use(self) -> Stream:
        self._gpus.stack()[-1:] = [self]
        return self

    def begin(self) -> Clock:
        """Return the clock of the next queued item, which knows what is ordered before it."""
        with self._gpus.checker.lock:
            null = self._gpus.null
            if self is null:
                for other in self._gpus.streams:
                    if other.is_blocking:
                        self.clock.learn(other.clock.seen)
            elif self.is_blocking:
                self.clock.learn(null.clock.seen)
            self._gpus.checker.issue(self.clock)
        return self.clock

    def begin_capture(self, mode: int = 2) -> None:
        self._gpus.capture(Graph(self._gpus))

    def end_capture(self) -> Graph:
        graph = self._gpus.graph
        if graph is None or graph.invalid:
            self._gpus.capture(None)
            raise CUDARuntimeError(_INVALIDATED)
        self._gpus.capture(None)
        return graph

    def wait_event(self, event: Event) -> None:
        self.waited_for.append(event)
        recording = event.recording
        if recording is not None:
            with self._gpus.lock:
                self.clock.learn(recording.seen)
            self._submit(lambda: recording.has_passed(self._go_on))

    def add_callback(self, callback: Callable[[Any, int, Any], None], argument: Any) -> None:
        seen = dict(self.begin().seen)

        def reached() -> None:
            self._gpus.host_saw(seen)
            callback(self, 0 if self._error is None else self._error.status, argument)

        self.when_reached(reached)

    def when_reached(self, happen: Callable[[], object]) -> None:
        def item() -> bool:
            happen()
            return True

        self._submit(item)

    def _submit(self, item: Callable[[], bool]) -> None:
        with self._gpus.lock:
            self._queue.append(item)
            self._go_on()

    def _go_on(self) -> None:
        with self._gpus.lock:
            while self._queue and not self._held and self._queue[0]():
                self._queue.popleft()

    @property
    def done(self) -> bool:
        return not self._queue

    def synchronize(self) -> None:
        event = Event(self._gpus)
        event.record(self)
        event.synchronize()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        self._go_on()

    def fail(self, status: int) -> None:
        """Let everything that is recorded from now on complete with this error."""
        self._error = CUDARuntimeError(status)

    @property
    def error(self) -> CUDARuntimeError | None:
        return self._error


class Graph:
    """Captured kernels: none has run yet, and each launch runs them on the memory that they had at capture."""

    def __init__(self, gpus: Gpus) -> None:
        self.invalid = False
        self.read: list[TrackedBuffer] = []
        self.written: list[Any] = []  # by the next kernel
        self._gpus = gpus
        self._calls: list[Callable[[], None]] = []

    def refuse(self) -> None:
        self.invalid = True
        raise CUDARuntimeError(_NOT_CAPTURED)

    def add(self, make: Callable[[], Any]) -> Any:
        before = [(host, host.copy()) for host in self.written]
        self.written = []
        made = _host_arrays(make())
        for one, other in zip(made, _host_arrays(make()), strict=True):
            if not np.may_share_memory(one, other):
                one.fill(np.nan if one.dtype.kind in "fc" else 0)
        for host, content in before:
            host[...] = content

        def again() -> None:
            for one, new in zip(made, _host_arrays(make()), strict=True):
                if not np.may_share_memory(one, new):
                    one[...] = new

        self._calls.append(again)
        return made[0] if len(made) == 1 else tuple(made)

    def launch(self, stream: Stream | None = None) -> None:
        on = stream or self._gpus.stack()[-1]
        with self._gpus.checker.lock:
            for buffer in self.read:
                self._gpus.checker.read(buffer, on.begin(), "a graph")
        for call in self._calls:
            call()


def _host_arrays(made: Any) -> list[Any]:
    if isinstance(made, tuple | list):
        return [np.asarray(each) for each in made]
    return [] if made is None else [np.asarray(made)]


class Recording:
    """A point in a stream."""

    def __init__(self, seen: dict[Clock, int]) -> None:
        self.seen = seen
        self.passed = threading.Event()
        self.at = 0.0
        self._waiting: list[Callable[[], None]] = []

    def has_passed(self, otherwise: Callable[[], None]) -> bool:
        if not self.passed.is_set():
            self._waiting.append(otherwise)
            return False
        return True

    def happen(self) -> None:
        self.at = perf_counter()
        self.passed.set()
        while self._waiting:
            self._waiting.pop()()


class Event:
    """Completes when its stream reaches the point where it was last recorded."""

    def __init__(self, gpus: Gpus, block: bool = False, disable_timing: bool = False) -> None:
        self.recording: Recording | None = None
        self._gpus = gpus
        self._stream: Stream | None = None
        self._timed = not disable_timing

    def record(self, stream: Stream | None = None) -> None:
        self._stream = stream = stream or self._gpus.stack()[-1]
        with self._gpus.lock:
            recording = self.recording = Recording(dict(stream.begin().seen))
            stream.when_reached(recording.happen)

    def milliseconds_since(self, other: Event) -> float:
        for event in (self, other):
            if not (event._timed and event.done):
                raise CUDARuntimeError(600)  # not ready, or without timing
        assert self.recording is not None
        assert other.recording is not None
        return (self.recording.at - other.recording.at) * 1e3

    @property
    def done(self) -> bool:
        if self.recording is None:
            return True
        if not self.recording.passed.is_set():
            return False
        self._gpus.host_saw(self.recording.seen)
        return True

    def synchronize(self) -> None:
        if self.recording is None:
            return
        self.recording.passed.wait()
        self._gpus.host_saw(self.recording.seen)
        if self._stream is not None and self._stream.error is not None:
            raise self._stream.error


# Memory


class UnownedMemory:
    """As `cupy.cuda.UnownedMemory`: it does not support weak references."""

    __slots__ = ("_owner", "device_id", "ptr", "size")

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self.device_id, self._owner = ptr, size, device_id, owner


class MemoryPointer:
    """As `cupy.cuda.MemoryPointer`."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


class PooledMemory:
    """Memory from a pool, returned to it when this object is freed."""

    ptr = 0

    def __init__(self, pool: Arenas, stream: Stream, size: int) -> None:
        self.size, self._pool, self._stream = size, pool, stream

    def __del__(self) -> None:
        self._pool.free(self._stream, self.size)


class Arenas:
    """The memory of one GPU: freed memory stays with its stream, and still counts."""

    def __init__(self, gpus: Gpus, allocator: Callable[[int], Any] | None) -> None:
        self._gpus = gpus
        self._allocator = allocator
        self._taken: list[Any] = []  # blocks from the allocator
        self.limit = MEMORY
        self.used = self.total = 0
        self._free: dict[Stream, list[int]] = {}

    def malloc(self, num_bytes: int) -> MemoryPointer:
        size, stream = -(-num_bytes // _ROUNDED) * _ROUNDED, self._gpus.stack()[-1]
        with self._gpus.lock:
            free = self._free.setdefault(stream, [])
            fitting = bisect.bisect_left(free, size)
            if fitting < len(free):
                rest = free.pop(fitting) - size
                if rest:
                    bisect.insort(free, rest)
            elif self.total + size > self.limit:
                raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (limit {self.limit:,})")
            else:
                if self._gpus.graph is not None:
                    self._gpus.graph.refuse()  # a thread that captures may not ask the driver for memory
                if self._allocator is not None:
                    self._taken.append(self._allocator(size))
                self.total += size
            self.used += size
            return MemoryPointer(PooledMemory(self, stream, size), 0)

    def free(self, stream: Stream, size: int) -> None:
        with self._gpus.lock:
            self.used -= size
            bisect.insort(self._free.setdefault(stream, []), size)

    def free_all_blocks(self) -> None:
        with self._gpus.lock:
            self._free.clear()
            self.total = self.used


class MemoryPool:
    """As `cupy.cuda.MemoryPool`: it has one pool per GPU, and uses that of the thread's current GPU."""

    def __init__(self, gpus: Gpus, allocator: Callable[[int], Any] | None = None) -> None:
        self._gpus = gpus
        self._allocator = allocator
        self._pools: dict[int, Arenas] = {}

    def _of_current(self) -> Arenas:
        return self._pools.setdefault(self._gpus.current_device(), Arenas(self._gpus, self._allocator))

    def set_limit(self, *, size: int) -> None:
        self._of_current().limit = size

    def used_bytes(self) -> int:
        return self._of_current().used

    def total_bytes(self) -> int:
        return self._of_current().total

    def malloc(self, num_bytes: int) -> MemoryPointer:
        return self._of_current().malloc(num_bytes)

    def free_all_blocks(self) -> None:
        self._of_current().free_all_blocks()


class Pinned(np.ndarray[Any, Any]):
    """Pinned memory, as a buffer."""


# The machine


class Gpus:
    """The GPUs of a machine, their streams, and each thread's current ones; observes accesses to arrays."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lock = threading.RLock()
        self.checker = StreamChecker()
        self.streams: list[Stream] = []
        self.null = Stream(self, name="the null stream")
        self._buffers: dict[int, tuple[weakref.ref[Any], TrackedBuffer]] = {}
        self._threads = threading.local()
        self.pinned: Callable[[int], Any] = self.pinned_of_default_pool

    def set_pinned(self, malloc: Callable[[int], Any]) -> None:
        self.pinned = malloc

    def stack(self) -> list[Stream]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = [self.null]
        stack: list[Stream] = self._threads.stack
        return stack

    @property
    def graph(self) -> Graph | None:
        """The graph that this thread captures, or None."""
        return getattr(self._threads, "graph", None)

    def capture(self, graph: Graph | None) -> None:
        self._threads.graph = graph

    def current_device(self) -> int:
        return int(getattr(self._threads, "device", 0))

    def use_device(self, number: int) -> None:
        """Like `cupy.cuda.Device(number).use()`; accesses of this thread to arrays are observed from now on."""
        self._threads.device = number
        strict_arrays.observing.by = self

    def device_count(self) -> int:
        if not self.count:
            raise CUDARuntimeError(35)
        return self.count

    def host_saw(self, seen: dict[Clock, int]) -> None:
        with self.checker.lock:
            self.checker.host.learn(seen)

    @contextlib.contextmanager
    def using_allocator(self, malloc: Callable[[int], Any]) -> Iterator[None]:
        before = getattr(self._threads, "malloc", None)
        self._threads.malloc = malloc
        try:
            yield
        finally:
            self._threads.malloc = before

    # Accesses to arrays, as `strict_arrays.observing` reports them

    def makes(self, host: Any) -> None:
        """A new array, or a new view of one, was made."""
        owner = buffer_of(host)
        if id(owner) in self._buffers:
            return
        malloc = getattr(self._threads, "malloc", None)
        if malloc is None or not isinstance(owner, np.ndarray) or not owner.nbytes:
            return
        stream = self.stack()[-1]
        if self.graph is not None:
            return  # only the graph uses it, and keeps it: its memory from a pool is not tracked
        pointer = malloc(owner.nbytes)
        buffer = TrackedBuffer(f"an array of {stream.name}", passed=stream.clock)
        key = id(owner)
        self._buffers[key] = weakref.ref(owner), buffer
        strict_arrays.memories[key] = pointer.mem
        weakref.finalize(owner, self._forget, key)
        with self.checker.lock:
            self.checker.write(buffer, stream.begin(), "a kernel")

    def _forget(self, key: int) -> None:
        _, buffer = self._buffers.pop(key)
        del strict_arrays.memories[key]
        self.checker.free(buffer)  # which home, the stream that gets it next, has to know the users of

    def reads(self, host: Any) -> None:
        known = self._buffers.get(id(buffer_of(host)))
        if self.graph is not None:
            self.graph.read += [known[1]] if known is not None else []
            return
        if known is not None:
            with self.checker.lock:
                self.checker.read(known[1], self.stack()[-1].begin(), "a kernel")

    def writes(self, host: Any) -> None:
        if self.graph is not None:
            self.graph.written.append(host)
            return
        known = self._buffers.get(id(buffer_of(host)))
        if known is not None:
            with self.checker.lock:
                self.checker.write(known[1], self.stack()[-1].begin(), "a kernel")

    def waits(self, _: Any) -> None:
        """The host reads values."""
        if self.graph is not None:
            self.graph.refuse()
        self.stack()[-1].synchronize()

    def uploads(self, array: Any) -> None:
        """An array is copied from the host."""
        if self.graph is not None:
            self.pinned(array.nbytes)

    def pinned_of_default_pool(self, num_bytes: int) -> Any:
        return np.zeros(num_bytes, np.uint8).view(Pinned)

    # Copies

    def _tracked_at(self, address: int) -> TrackedBuffer | None:
        for reference, buffer in list(self._buffers.values()):
            owner = reference()
            if owner is not None and owner.ctypes.data <= address < owner.ctypes.data + max(owner.nbytes, 1):
                return buffer
        return None

    def _access(self, address: int, stream: Stream, *, write: bool) -> None:
        buffer = self._tracked_at(address)
        if buffer is not None:
            with self.checker.lock:
                (self.checker.write if write else self.checker.read)(buffer, stream.begin(), "a copy")

    def memcpy(self, destination: int, source: int, num_bytes: int, kind: int, stream: int) -> None:
        on = next(each for each in self.streams if each.ptr == stream)
        content = ctypes.string_at(source, num_bytes)
        if kind == _TO_DEVICE:
            self._access(destination, on, write=True)
            ctypes.memmove(destination, content, num_bytes)

            def check() -> None:
                assert ctypes.string_at(source, num_bytes) == content, "pinned memory was changed before it was copied"

            on.when_reached(check)
        else:
            self._access(source, on, write=False)
            ctypes.memset(destination, _GARBAGE, num_bytes)
            on.when_reached(lambda: ctypes.memmove(destination, content, num_bytes))

    def memcpy_peer(self, destination: int, _to: int, source: int, _from: int, num_bytes: int, stream: int) -> None:
        on = next(each for each in self.streams if each.ptr == stream)
        self._access(source, on, write=False)
        self._access(destination, on, write=True)
        ctypes.memmove(destination, source, num_bytes)


_TO_DEVICE, _TO_HOST = 1, 2


class FakeDevice:
    """As `cupy.cuda.Device`."""

    def __init__(self, gpus: Gpus, number: int) -> None:
        self.id = number
        self._gpus = gpus
        self._before: list[int] = []

    def use(self) -> None:
        self._gpus.use_device(self.id)

    def __enter__(self) -> FakeDevice:
        self._before.append(self._gpus.current_device())
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        self._gpus.use_device(self._before.pop())


def fake_cupy(count: int = 1) -> Any:
    """Return a stand-in for the module CuPy, with `count` GPUs."""
    gpus = Gpus(count)
    module = ModuleType("fake_cupy")
    module.__dict__.update({k: v for k, v in vars(strict).items() if not k.startswith("__")})
    module.__version__ = strict.__version__
    module.gpus = gpus  # type: ignore[attr-defined]
    module.from_dlpack = lambda value: value.__dlpack__(stream=gpus.stack()[-1].ptr)  # type: ignore[attr-defined]
    module.get_default_pinned_memory_pool = lambda: SimpleNamespace(malloc=gpus.pinned_of_default_pool)  # type: ignore[attr-defined]
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=gpus.device_count,
        getDeviceProperties=lambda number: {"name": b"Stand-in", "totalGlobalMem": MEMORY},
        memcpyAsync=gpus.memcpy,
        memcpyPeerAsync=gpus.memcpy_peer,
        memcpyHostToDevice=_TO_DEVICE,
        streamCaptureModeThreadLocal=1,
        memcpyDeviceToHost=_TO_HOST,
    )
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=runtime,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        Device=lambda number: FakeDevice(gpus, number),
        Stream=lambda **options: Stream(gpus, **options),
        Event=lambda **options: Event(gpus, **options),
        get_elapsed_time=lambda begin, end: end.milliseconds_since(begin),
        MemoryPool=lambda allocator=None: MemoryPool(gpus, allocator),
        set_pinned_memory_allocator=gpus.set_pinned,
        MemoryPointer=MemoryPointer,
        UnownedMemory=UnownedMemory,
        using_allocator=gpus.using_allocator,
        alloc_pinned_memory=lambda num_bytes: gpus.pinned(num_bytes),
        get_current_stream=lambda: gpus.stack()[-1],
    )
    return module


def gpu_factory(cupy: Any) -> DeviceFactory:
    """Return a factory that gives sessions one GPU, unless they ask for none."""
    return lambda task, count: [] if count == 0 else [CudaDevice(f"{task}/device:GPU:0", cupy=cupy)]
