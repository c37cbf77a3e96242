"""`CudaAllocator`: a GPU's memory, from a pool of CuPy's, with a limit and statistics."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.allocator import Allocator, AllocatorStats
from aexec.framework.dtypes import DType
from aexec.framework.shape import shape_text
from aexec.framework.tensor_buffer import ALIGNMENT
from aexec.kernels.common.portable import is_on_device

__all__ = ["CudaAllocator", "instances", "largest"]

# So many of the largest values are named where memory does not suffice.
_NAMED = 5
_MEBIBYTE = 1 << 20


class CudaAllocator(Allocator):
    """The memory of one GPU.

    CuPy's pool keeps what is freed, split and joined, per stream, and asks the driver for more only if nothing
    fits; before it gives up it returns all that is free to the driver.

    Args:
        name: of the device.
        cupy: the module.
        limit_bytes: most that the pool may hold; None for what the GPU has.
    """

    def __init__(self, name: str, cupy: Any, limit_bytes: int | None = None) -> None:
        self.name = name
        self._cupy = cupy
        self._limit = limit_bytes
        self._pool = cupy.cuda.MemoryPool()
        if limit_bytes is not None:
            self._pool.set_limit(size=limit_bytes)
        self._count = self._largest = self._peak = 0

    def malloc(self, num_bytes: int) -> Any:
        """What CuPy calls for the memory of an array, in the threads of the device."""
        pointer = self._pool.malloc(num_bytes)
        self._count += 1
        self._largest = max(self._largest, num_bytes)
        self._peak = max(self._peak, self._pool.used_bytes())
        return pointer

    def allocate(self, num_bytes: int, alignment: int = ALIGNMENT) -> Any:
        """A uint8 array on the GPU; CUDA aligns all memory to 256 bytes."""
        with self._cupy.cuda.using_allocator(self.malloc):
            try:
                return self._cupy.empty((num_bytes,), "uint8")
            except self._cupy.cuda.memory.OutOfMemoryError as error:
                raise errors.ResourceExhaustedError(str(error)) from None

    def allocate_tensor(self, shape: Sequence[int], dtype: DType, device: str = "", *, zeros: bool = False) -> Any:
        """As `Allocator.allocate_tensor`, on the GPU.

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
        used: int = self._pool.used_bytes()
        return AllocatorStats(self._count, used, max(self._peak, used), self._largest, self._limit)

    def clear_stats(self) -> None:
        self._count = self._largest = 0
        self._peak = self._pool.used_bytes()

    def release(self) -> None:
        """Give what is free back to the driver."""
        self._pool.free_all_blocks()


def largest(values: Iterable[Any]) -> str:
    """The largest of the values that are alive, a line each, with the nodes that made them."""
    alive = sorted((value for value in values if value.array is not None), key=lambda value: -value.array.nbytes)
    lines = [
        f"  {value.array.nbytes / _MEBIBYTE:.1f} MiB: {value.array.dtype}{shape_text(value.array.shape)} "
        f"of {{{{node {value.node}}}}}"
        for value in alive[:_NAMED]
    ]
    return "\n".join(["Largest live values:", *lines]) if lines else "No values are alive."


def instances(kind: type) -> list[Any]:
    """All there are.  Slow, and only for what is asked once: nothing is paid for it meanwhile."""
    return [thing for thing in gc.get_objects() if type(thing) is kind]
