"""`tensorflow.python.ops.variables` and `resource_variable_ops`: the class of variables under its other names.

Next to read: `aexec/compat/v1/functions/variables.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.functions.variables import Variable
from aexec.variables.partitioned_variable import PartitionedVariable
from aexec.variables.variable import Variable as _Ours

__all__ = ["PartitionedVariable", "RefVariable", "ResourceVariable", "VariableV1", "is_resource_variable"]

RefVariable = VariableV1 = Variable


def ResourceVariable(*args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """A `tf.Variable` in resource form."""
    return Variable(*args, **{**kwargs, "use_resource": True})


def is_resource_variable(var: Any) -> bool:
    """Whether a variable is in resource form."""
    return isinstance(var, _Ours) and var.is_resource
