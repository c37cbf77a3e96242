"""`tensorflow.python.training.slot_creator`: variables that belong to others, as the moments of an optimiser.

Next to read: `aexec/compat/v1/networks/optimizers.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.client.building import colocate_with, name_scope
from aexec.framework.dtypes import as_dtype
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.initializers import Zeros
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import get_variable_scope

__all__ = ["create_slot", "create_slot_with_initializer", "create_zeros_slot"]


def create_slot(primary: Variable, val: Any, name: str, colocate_with_primary: bool = True) -> Variable:
    """A variable that is not trained and is named after another: `PRIMARY/NAME`.

    Args:
        val: its first value.
    """
    return _made(primary, lambda: convert_to_tensor(val), name, colocate_with_primary)


def create_slot_with_initializer(
    primary: Variable, initializer: Any, shape: Any, dtype: Any, name: str, colocate_with_primary: bool = True
) -> Variable:
    """The same, with a shape and a type of its own."""
    sizes = [int(size) for size in shape]
    return _made(primary, lambda: initializer(sizes, as_dtype(dtype)), name, colocate_with_primary)


def create_zeros_slot(primary: Variable, name: str, dtype: Any = None, colocate_with_primary: bool = True) -> Variable:
    """The same, of zeros with the shape of the other."""
    kind = primary.dtype.base if dtype is None else as_dtype(dtype)
    return create_slot_with_initializer(primary, Zeros(), primary.static_shape, kind, name, colocate_with_primary)


def _made(primary: Variable, first: Any, name: str, colocated: bool) -> Variable:
    scope = get_variable_scope().name
    called = "/".join(part for part in (scope, primary.op.name, name) if part)
    settings: dict[str, Any] = {"trainable": False, "name": called, "use_resource": primary.is_resource}
    with name_scope(None):
        if not colocated:
            return Variable(first, **settings)
        with colocate_with(primary):
            return Variable(first, **settings)
