"""Outputs of elementwise kernels in memory of the host's allocator, where a program has registered one.

Such kernels take the array to write into, as NumPy's ufuncs do; by default NumPy makes it, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction

__all__ = ["LARGE_BYTES", "in_registered_memory"]

# From this on an array is the allocator's: going there takes some microseconds.  Filling it takes longer than one call
# may hold the loop.
LARGE_BYTES = 2 << 20


def in_registered_memory(compute: Callable[..., Any], c: OpKernelConstruction) -> Callable[..., Any]:
    """A compute callable that writes its large outputs into memory of the host's allocator.

    The same one if none is registered, or the kernel does not take `out`.
    """
    if not (c.forwards and c.has_registered_allocator) or c.takes_list or c.wants_context:
        return compute
    dtype, device, positions, allocator = c.output_types[0].base, c.device, c.forwards, c.allocator_of_calls
    large = LARGE_BYTES // dtype.np.itemsize

    def compute_there(*inputs: Any, out: Any = None) -> Any:
        if out is None and (shape := _large_shape([inputs[i] for i in positions], large)) is not None:
            out = allocator().allocate_tensor(shape, dtype, device)
        return compute(*inputs) if out is None else compute(*inputs, out=out)

    return compute_there


def _large_shape(arrays: Sequence[Any], large: int) -> tuple[int, ...] | None:
    """To what arrays are broadcast, if that has so many elements; None, too, where the kernel is to refuse them."""
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return None
    return shape if np.prod(shape, dtype=float) >= large else None
