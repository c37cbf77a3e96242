"""`ResourceVariable`: a tensor in the resource manager, reached through a handle.

`tensor_cell.py` describes how reads and updates are kept apart.
"""

from __future__ import annotations

import weakref
from typing import Any

from aexec.framework.dtypes import DType
from aexec.framework.state.resource_manager import ResourceManager, handle_from_tensor, is_fixed_handle
from aexec.framework.state.tensor_cell import TensorCell

__all__ = ["ResourceVariable", "VariableLookup"]


class ResourceVariable(TensorCell):
    """A variable that outlives steps.

    Attributes:
        closed: True once it has left its resource manager.
    """

    __slots__ = ("closed",)

    def __init__(self, dtype: DType, value: Any = None) -> None:
        super().__init__(dtype, value)
        self.closed = False

    def close(self) -> None:
        """Called when the variable leaves its manager: handles do not name it any more."""
        self.closed = True


class VariableLookup:
    """Finds the variable that a handle names, and remembers the last one while it is in its manager.

    Each kernel has a lookup of its own, since its handle is usually a constant of the plan.  The lookup does not keep
    the variable alive.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        # (tensor, manager, weak reference to the variable); replaced as a whole, as other threads may read it.
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def __call__(self, resources: ResourceManager, handle_tensor: Any) -> ResourceVariable:
        """The variable that the handle names.

        Raises:
            InvalidArgumentError: the tensor is not a handle, or a handle to something else.
            NotFoundError: there is no such variable.
        """
        tensor, manager, reference = self._last
        if tensor is handle_tensor and manager is resources:
            known: ResourceVariable | None = reference()
            if known is not None and not known.closed:
                return known
        found = resources.lookup_handle(handle_from_tensor(handle_tensor), ResourceVariable)
        if is_fixed_handle(handle_tensor):
            self._last = handle_tensor, resources, weakref.ref(found)
        return found
