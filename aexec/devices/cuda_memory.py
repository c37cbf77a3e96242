"""`CudaAllocator`: a GPU's memory, from a pool of CuPy's, with a limit and statistics."""

from __future__ import annotations

import gc
import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import WATCHED_CALLS, Allocator, AllocatorStats, watched
from aexec.framework.memory.tensor_buffer import ALIGNMENT
from aexec.framework.shape import shape_text
from aexec.kernels.common.portable import is_on_device

__all__ = ["CudaAllocator", "instances", "largest"]

# The number of largest values that an out-of-memory error names.
_NAMED = 5
_MEBIBYTE = 1 << 20


class CudaAllocator(Allocator):
    """The memory of one GPU.

    CuPy's pool keeps freed memory, per stream, splits and joins it, and asks the driver for more only if nothing fits.
    The limit is on the memory that the pool holds: before it is exceeded, all free memory goes back to the driver.

    Args:
        name: the device's name.
        cupy: the module.
        number: CUDA's number of the device.
        limit_bytes: most bytes that the pool may hold; None for all of the GPU's.
    """

    def __init__(self, name: str, cupy: Any, number: int = 0, limit_bytes: int | None = None) -> None:
        self.name = name
        self._cupy = cupy
        self._number = number
        self._limit = limit_bytes
        # In fact one for each GPU; CuPy takes that of the thread's current device.
        self._pool = cupy.cuda.MemoryPool()
        self._is_limited = limit_bytes is None
        self._block = _block_type(cupy)
        self._lock = threading.Lock()
        # Sizes of freed memory.  It is freed in any thread, and subtracted by the next call.
        self._dead: deque[int] = deque()
        self._in_use = self._count = self._largest = self._peak = 0

    def limit(self, num_bytes: int) -> None:
        """Limit the pool to `num_bytes`.  Called before it holds any."""
        self._limit = num_bytes
        self._is_limited = False

    def malloc(self, num_bytes: int) -> Any:
        """Allocate the memory of an array; called by CuPy, in the threads of the device."""
        if WATCHED_CALLS[0]:
            return watched(self)._allocate(num_bytes, ALIGNMENT, zeros=False).data
        return self._malloc(num_bytes)

    def _malloc(self, num_bytes: int) -> Any:
        pointer = self._of_pool(num_bytes)
        if not num_bytes:
            return pointer
        size: int = pointer.mem.size  # includes the padding for alignment
        with self._lock:
            self._account_for_dead()
            self._in_use += size
            self._count += 1
            self._largest = max(self._largest, size)
            self._peak = max(self._peak, self._in_use)
        return self._cupy.cuda.MemoryPointer(self._block(pointer, size, self._number, self._dead), 0)

    def _of_pool(self, num_bytes: int) -> Any:
        if not self._is_limited:
            self._pool.set_limit(size=self._limit)
            self._is_limited = True
        try:
            return self._pool.malloc(num_bytes)
        except self._cupy.cuda.memory.OutOfMemoryError:
            if self._limit is None:
                raise
        self._pool.free_all_blocks()  # CuPy does that if the driver has no more, but not at a limit
        return self._pool.malloc(num_bytes)

    def _account_for_dead(self) -> None:
        while self._dead:
            self._in_use -= self._dead.popleft()

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Any:
        """A uint8 array on the GPU; CUDA aligns all memory to 256 bytes."""
        try:
            with self._cupy.cuda.Device(self._number):
                return self._allocate(num_bytes, alignment, zeros=False)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise errors.ResourceExhaustedError(str(error)) from None

    def _allocate(self, num_bytes: int, alignment: int, *, zeros: bool) -> Any:
        with self._cupy.cuda.using_allocator(self._malloc):
            return (self._cupy.zeros if zeros else self._cupy.empty)((num_bytes,), "uint8")

    def allocate_tensor(self, shape: Sequence[int], dtype: DType, device: str = "", *, zeros: bool = False) -> Any:
        """Like `Allocator.allocate_tensor`, on the GPU.

        Raises:
            InvalidArgumentError: elements that are objects.
            ResourceExhaustedError: there is not enough memory.
        """
        if not is_on_device(dtype):
            raise errors.InvalidArgumentError(f"tensors of {dtype} live in host memory, not on {self.name}")
        bytes_wanted = math.prod(shape) * dtype.np.itemsize
        try:
            memory = self.allocate(bytes_wanted)
        except errors.ResourceExhaustedError as error:
            raise errors.ResourceExhaustedError(
                f"OOM when allocating tensor with shape{shape_text(shape)} and type {dtype} on {self.name} "
                f"by allocator {self.name}: {error}"
            ) from None
        if zeros:
            memory.fill(0)
        return memory.view(dtype.np).reshape(shape)

    def stats(self) -> AllocatorStats:
        with self._lock:
            self._account_for_dead()
            return AllocatorStats(self._count, self._in_use, self._peak, self._largest, self._limit)

    def clear_stats(self) -> None:
        with self._lock:
            self._account_for_dead()
            self._count = self._largest = 0
            self._peak = self._in_use

    def release(self) -> None:
        """Give free memory back to the driver."""
        if self._count:
            with self._cupy.cuda.Device(self._number):
                self._pool.free_all_blocks()


def _block_type(cupy: Any) -> Any:
    """A type of memory that reports when it is freed; CuPy's own does not, and cannot be referred to weakly."""

    class Block(cupy.cuda.UnownedMemory):  # type: ignore[misc]
        __slots__ = ("__weakref__", "_bytes", "_dead")

        def __init__(self, pointer: Any, num_bytes: int, device: int, dead: deque[int]) -> None:
            super().__init__(pointer.ptr, num_bytes, pointer, device)
            self._bytes = num_bytes
            self._dead = dead

        def __del__(self) -> None:
            self._dead.append(self._bytes)

    return Block


def largest(values: Iterable[Any]) -> str:
    """The largest of the live values, a line each, with the nodes that made them."""
    alive = sorted((value for value in values if value.array is not None), key=lambda value: -value.array.nbytes)
    lines = [
        f"  {value.array.nbytes / _MEBIBYTE:.1f} MiB: {value.array.dtype}{shape_text(value.array.shape)} "
        f"of {{{{node {value.node}}}}}"
        for value in alive[:_NAMED]
    ]
    return "\n".join(["Largest live values:", *lines]) if lines else "No values are alive."


def instances(kind: type) -> list[Any]:
    """All live objects of a type.  Slow, and only for errors; it needs no bookkeeping."""
    return [thing for thing in gc.get_objects() if type(thing) is kind]
