"""`ResourceVariable`: a tensor in the resource manager, reached through a handle.

Assigning replaces the array and never writes into it, so a value that was read stays
what it was.
"""

from __future__ import annotations

from typing import Any

from aexec.framework.dtypes import DType

__all__ = ["ResourceVariable"]


class ResourceVariable:
    """A variable that outlives steps.

    Attributes:
        dtype: value type.
        value: the array, or None while uninitialised.
    """

    __slots__ = ("__weakref__", "dtype", "value")

    def __init__(self, dtype: DType, value: Any = None) -> None:
        self.dtype = dtype
        self.value = value

    def __repr__(self) -> str:
        state = "uninitialized" if self.value is None else f"shape={self.value.shape}"
        return f"<ResourceVariable {self.dtype} {state}>"
