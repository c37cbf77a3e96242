"""Arrays of other libraries, taken by DLPack in the memory where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec.framework import errors

__all__ = ["DLPACK_GPU", "DLPACK_HOST", "array_from_dlpack"]

# DLPack's numbers for kinds of memory: the host's, and that of it which is pinned; a GPU's own, and managed memory.
DLPACK_HOST = frozenset({1, 3})
DLPACK_GPU = frozenset({2, 13})


def array_from_dlpack(from_dlpack: Callable[[Any], Any], value: Any, name: str) -> Any:
    """The array of another library, in the same memory.

    Args:
        from_dlpack: of the library whose array it becomes.
        name: what it is fed for.

    Raises:
        InvalidArgumentError: its owner does not give it, or the library has no such type.
    """
    try:
        return from_dlpack(value)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise errors.InvalidArgumentError(
            f"The value fed for {name}, of type {type(value).__name__}, cannot be taken by DLPack: {error}"
        ) from None
