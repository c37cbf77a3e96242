"""`ResourceVariable`: a tensor in the resource manager, reached through a handle.

How reads and updates keep out of each other's way is in `tensor_cell.py`.
"""

from __future__ import annotations

from aexec.framework.tensor_cell import TensorCell

__all__ = ["ResourceVariable"]


class ResourceVariable(TensorCell):
    """A variable that outlives steps."""

    __slots__ = ()
