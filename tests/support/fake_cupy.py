"""A stand-in for CuPy with streams, events, pools and pinned memory: `fake_cupy()` makes one, with its own GPUs.

Its arrays are those of `strict_arrays.py`, computed when a kernel is called; what `memcpyAsync` copies are real bytes.
A stream can be held (`Stream.hold`): events that are recorded then, and callbacks, pass when it is released, in their
order, so that tests see whether somebody waits who should, or should not.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from aexec.devices.cuda_device import CudaDevice
from aexec.devices.device_registry import DeviceFactory
from tests.support.strict_arrays import strict

__all__ = ["fake_cupy", "gpu_factory"]


# Bytes of each GPU.
MEMORY = 1 << 30


class CUDARuntimeError(RuntimeError):
    """As `cupy.cuda.runtime.CUDARuntimeError`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: an error of the device")
        self.status = status


class OutOfMemoryError(MemoryError):
    """As `cupy.cuda.memory.OutOfMemoryError`."""


class Stream:
    """Work is done when it is queued; what is recorded passes unless the stream is held."""

    def __init__(self, gpus: Gpus, *, non_blocking: bool = False) -> None:
        self.ptr = id(self)
        self.waited_for: list[Event] = []
        self._gpus = gpus
        self._held = False
        self._error: CUDARuntimeError | None = None
        self._waiting: list[Callable[[], None]] = []
        gpus.streams.append(self)

    def __enter__(self) -> Stream:
        self._gpus.stack().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._gpus.stack().pop()

    def use(self) -> Stream:
        self._gpus.stack()[-1:] = [self]
        return self

    def wait_event(self, event: Event) -> None:
        self.waited_for.append(event)

    def add_callback(self, callback: Callable[[Any, int, Any], None], argument: Any) -> None:
        self.when_reached(lambda: callback(self, 0 if self._error is None else self._error.status, argument))

    def when_reached(self, passed: Callable[[], None]) -> None:
        if self._held:
            self._waiting.append(passed)
        else:
            passed()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        while self._waiting:
            self._waiting.pop(0)()

    def fail(self, status: int) -> None:
        """All that is recorded from now on passes with this error."""
        self._error = CUDARuntimeError(status)

    @property
    def error(self) -> CUDARuntimeError | None:
        return self._error


class Event:
    """Passes when its stream gets to where it was recorded."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self._passed = threading.Event()
        self._passed.set()
        self._stream: Stream | None = None
        self._timed = not disable_timing
        self._at = 0.0

    def record(self, stream: Stream) -> None:
        self._passed.clear()
        self._stream = stream
        stream.when_reached(self._pass)

    def _pass(self) -> None:
        self._at = perf_counter()
        self._passed.set()

    def milliseconds_since(self, other: Event) -> float:
        for event in (self, other):
            if not (event._timed and event.done):
                raise CUDARuntimeError(600)  # not ready, or without a time
        return (self._at - other._at) * 1e3

    @property
    def done(self) -> bool:
        return self._passed.is_set()

    def synchronize(self) -> None:
        self._passed.wait()
        if self._stream is not None and self._stream.error is not None:
            raise self._stream.error


class Pool:
    """Counts what is taken."""

    def __init__(self) -> None:
        self._limit = MEMORY
        self._used = 0

    def set_limit(self, *, size: int) -> None:
        self._limit = size

    def used_bytes(self) -> int:
        return self._used

    def total_bytes(self) -> int:
        return self._used

    def malloc(self, num_bytes: int) -> int:
        if self._used + num_bytes > self._limit:
            raise OutOfMemoryError(f"Out of memory allocating {num_bytes:,} bytes (limit {self._limit:,})")
        self._used += num_bytes
        return num_bytes

    def free(self, num_bytes: int) -> None:
        self._used -= num_bytes

    def free_all_blocks(self) -> None:
        pass


class Pinned(np.ndarray[Any, Any]):
    """Pinned memory: a buffer."""


class Gpus:
    """What there is of a machine: GPUs, streams, the thread's current ones."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.streams: list[Stream] = []
        self.pool_of: Any = None
        self._threads = threading.local()

    def stack(self) -> list[Any]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = [Stream.__new__(Stream)]
            self._threads.stack[0].__init__(self)
        stack: list[Any] = self._threads.stack
        return stack

    def device_count(self) -> int:
        if not self.count:
            raise CUDARuntimeError(35)
        return self.count

    @contextlib.contextmanager
    def using_allocator(self, malloc: Callable[[int], int]) -> Iterator[None]:
        before = getattr(self._threads, "malloc", None)
        self._threads.malloc = malloc
        try:
            yield
        finally:
            self._threads.malloc = before

    def empty(self, shape: Any, dtype: Any) -> Any:
        size = shape if isinstance(shape, int) else math.prod(shape)
        return self._counted(lambda: strict.empty(shape, dtype), size * np.dtype(dtype).itemsize)

    def zeros(self, shape: Any, dtype: Any = float) -> Any:
        size = shape if isinstance(shape, int) else math.prod(shape)
        return self._counted(lambda: strict.zeros(shape, dtype), size * np.dtype(dtype).itemsize)

    def _counted(self, make: Callable[[], Any], num_bytes: int) -> Any:
        malloc = getattr(self._threads, "malloc", None)
        if malloc is None:
            return make()
        malloc(num_bytes)
        array = make()
        weakref.finalize(array._host, malloc.__self__._pool.free, num_bytes)
        return array


def _memcpy(destination: int, source: int, num_bytes: int, _kind: int, _stream: int) -> None:
    ctypes.memmove(destination, source, num_bytes)


def _memcpy_peer(destination: int, _to: int, source: int, _from: int, num_bytes: int, _stream: int) -> None:
    ctypes.memmove(destination, source, num_bytes)


def fake_cupy(count: int = 1) -> Any:
    """A module in CuPy's place, with so many GPUs."""
    gpus = Gpus(count)
    module = ModuleType("fake_cupy")
    module.__dict__.update({k: v for k, v in vars(strict).items() if not k.startswith("__")})
    module.__version__ = strict.__version__
    module.gpus = gpus  # type: ignore[attr-defined]
    module.empty, module.zeros = gpus.empty, gpus.zeros  # type: ignore[attr-defined]
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=gpus.device_count,
        getDeviceProperties=lambda number: {"name": b"Stand-in", "totalGlobalMem": MEMORY},
        memcpyAsync=_memcpy,
        memcpyPeerAsync=_memcpy_peer,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
    )
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=runtime,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        Device=lambda number: SimpleNamespace(use=lambda: None),
        Stream=lambda **options: Stream(gpus, **options),
        Event=Event,
        get_elapsed_time=lambda begin, end: end.milliseconds_since(begin),
        MemoryPool=Pool,
        using_allocator=gpus.using_allocator,
        alloc_pinned_memory=lambda num_bytes: np.zeros(num_bytes, np.uint8).view(Pinned),
        get_current_stream=lambda: gpus.stack()[-1],
    )
    return module


def gpu_factory(cupy: Any) -> DeviceFactory:
    """What gives sessions one GPU, unless they ask for none."""
    return lambda task, count: [] if count == 0 else [CudaDevice(f"{task}/device:GPU:0", cupy=cupy)]
