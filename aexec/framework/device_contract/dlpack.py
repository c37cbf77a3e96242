"""Takes arrays of other libraries by DLPack, without copying them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec.framework import errors

__all__ = ["DLPACK_GPU", "DLPACK_HOST", "array_from_dlpack"]

# DLPack's device types: host memory and pinned host memory; GPU memory and managed memory.
DLPACK_HOST = frozenset({1, 3})
DLPACK_GPU = frozenset({2, 13})


def array_from_dlpack(from_dlpack: Callable[[Any], Any], value: Any, name: str) -> Any:
    """The array of another library, in the same memory.

    Args:
        from_dlpack: the function of the library whose array it becomes.
        name: the name of the feed, for errors.

    Raises:
        InvalidArgumentError: the array's owner refuses, or the library has no such type.
    """
    try:
        return from_dlpack(value)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise errors.InvalidArgumentError(
            f"The value fed for {name}, of type {type(value).__name__}, cannot be taken by DLPack: {error}"
        ) from None
