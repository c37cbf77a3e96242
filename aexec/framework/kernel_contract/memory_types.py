"""Memory types: whether an input or output of a node is in host memory or in its device's.

Strings, resource handles and variants are always in host memory; a kernel's registration names more; a node's
`_input_hostmem` and `_output_hostmem` attrs list positions; the rest is in the device's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.types import MemoryType

__all__ = ["memory_types"]

# Variants hold values in host memory: only the host has kernels for them.
_ON_HOST = (*dtypes.ALWAYS_ON_HOST, dtypes.variant)


def memory_types(
    types: Sequence[DType],
    ranges: Mapping[str, tuple[int, int]],
    host_memory: Sequence[str],
    attrs: Mapping[str, Any],
    hostmem_attr: str,
) -> tuple[MemoryType, ...]:
    """The memory type of each flattened input (or output).

    Args:
        types: their DTypes.
        ranges: argument name → [start, stop) in the flattened list.
        host_memory: names of arguments that the kernel keeps in host memory; names that are not in `ranges` are
            ignored.
        attrs: the node's attrs.
        hostmem_attr: `_input_hostmem` or `_output_hostmem`.

    Raises:
        InvalidArgumentError: a position in `hostmem_attr` does not exist.
    """
    result = [MemoryType.HOST_MEMORY if dtype.base in _ON_HOST else MemoryType.DEVICE_MEMORY for dtype in types]
    for name in host_memory:
        start, stop = ranges.get(name, (0, 0))
        result[start:stop] = [MemoryType.HOST_MEMORY] * (stop - start)
    for position in attrs.get(hostmem_attr, ()):
        if not 0 <= position < len(result):
            raise errors.InvalidArgumentError(f"{hostmem_attr} names {position}, not in [0, {len(result)})")
        result[position] = MemoryType.HOST_MEMORY
    return tuple(result)
