"""`ResourceVariable`: a tensor in the resource manager, reached through a handle.

How reads and updates keep out of each other's way is in `tensor_cell.py`.
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
        closed: it has left its resource manager.
    """

    __slots__ = ("closed",)

    def __init__(self, dtype: DType, value: Any = None) -> None:
        super().__init__(dtype, value)
        self.closed = False

    def close(self) -> None:
        """It is no longer what its handle names."""
        self.closed = True


class VariableLookup:
    """Finds the variable that a handle names; the same handle again costs no look-up, as long as the variable is there.

    A kernel has one for itself: its handle is a constant of the plan as a rule.  It does not keep the variable alive.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        # The tensor, the manager, and the variable; replaced as a whole, as other threads may look.
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def __call__(self, resources: ResourceManager, handle_tensor: Any) -> ResourceVariable:
        """The variable.

        Raises:
            InvalidArgumentError: no handle, or one to something else.
            NotFoundError: there is none.
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
