"""Copies of recurrent cells that make their own weights.

Next to read: `rnn_cell.py`.
"""

from __future__ import annotations

import copy
from typing import Any

from aexec import nn
from aexec.compat.v1.networks.base_layer import Layer

__all__ = ["unbuilt_copy"]

# What calls of a cell or layer leave in it → its value before the first call.
_BEFORE: dict[str, Any] = {"_scope": None, "built": False, "_weights": [], "_losses": [], "_updates": []}


def unbuilt_copy(cell: Any) -> Any:
    """A copy of a cell whose first call makes or finds weights in the variable scope of that call.

    Cells and layers inside are copied too.  Tensors, such as a `keep_prob`, and all other values are shared.
    """
    if isinstance(cell, nn.RNNCell | Layer):
        made = copy.copy(cell)
        for name, value in vars(cell).items():
            vars(made)[name] = copy.copy(_BEFORE[name]) if name in _BEFORE else unbuilt_copy(value)
        return made
    if type(cell) in (list, tuple):
        return type(cell)(unbuilt_copy(part) for part in cell)
    return cell
