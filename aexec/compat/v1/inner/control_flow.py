"""`tensorflow.python.ops.control_flow_ops`: dependencies, and the nodes that conditionals are made of.

Next to read: `aexec/compat/v1/functions/control_flow_ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.values.framework_ops import control_dependencies, name_scope

__all__ = ["merge", "switch", "with_dependencies"]


def with_dependencies(dependencies: Sequence[Any], output_tensor: Any, name: str | None = None) -> Any:
    """A tensor, once some operations have run."""
    with name_scope(name, "control_dependency", [*dependencies, output_tensor]) as scope:
        tensor = convert_to_tensor(output_tensor)
        with control_dependencies(dependencies):
            return ops.identity(tensor, name=scope)


def switch(data: Any, pred: Any, dtype: Any = None, name: str | None = None) -> tuple[Any, Any]:
    """The tensor if the condition is false, and if it is true; the other is dead."""
    made = ops.switch(convert_to_tensor(data, dtype), convert_to_tensor(pred), name=name)
    return made[0], made[1]


def merge(inputs: Sequence[Any], name: str | None = None) -> Any:
    """The one of several tensors that is not dead, as `output`, and its number, as `value_index`."""
    return ops.merge([convert_to_tensor(each) for each in inputs], name=name)
