"""Puts outputs of elementwise kernels into memory of the host's allocator, if a program has registered one.

Such kernels take the array to write into, as NumPy's ufuncs do; by default NumPy allocates it, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction

__all__ = ["LARGE_BYTES", "in_registered_memory"]

# Smaller arrays are left to NumPy: calling the allocator takes some microseconds.  An array of this size takes longer
# to # fill than one call may hold the event loop.
LARGE_BYTES = 2 << 20


def in_registered_memory(compute: Callable[..., Any], c: OpKernelConstruction) -> Callable[..., Any]:
    """A compute callable that writes its large outputs into memory of the host's allocator.

    Returns `compute` itself if no allocator is registered, or the kernel does not take `out`.
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
    """The shape that the arrays broadcast to, if it has at least `large` elements; else None, also if they do not
    broadcast.
    """
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return None
    return shape if np.prod(shape, dtype=float) >= large else None
