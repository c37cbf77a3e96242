"""The variables of a graph, and operations that initialise them or report those without a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from aexec import ops
from aexec.client.building import device, group, name_scope
from aexec.client.input import epoch_initializers
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.variables.variable import Variable

__all__ = [
    "assert_variables_initialized",
    "global_variables",
    "global_variables_initializer",
    "is_variable_initialized",
    "local_variables",
    "local_variables_initializer",
    "model_variables",
    "moving_average_variables",
    "report_uninitialized_variables",
    "trainable_variables",
    "variables_initializer",
]


def global_variables(scope: str | None = None) -> list[Variable]:
    """Variables that checkpoints have; with `scope`, those whose name begins with a match of that pattern."""
    return _collected(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Variable]:
    """Variables of this process only, such as counters of metrics; `scope` as for `global_variables`."""
    return _collected(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Variables that optimisers change; `scope` as for `global_variables`."""
    return _collected(GraphKeys.TRAINABLE_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Variable]:
    """Variables that inference needs; `scope` as for `global_variables`."""
    return _collected(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """Variables of which averages are kept; `scope` as for `global_variables`."""
    return _collected(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def _collected(name: str, scope: str | None) -> list[Variable]:
    return require_graph().collections.get(name, scope)


def variables_initializer(variables: Iterable[Variable], name: str = "init") -> Node:
    """An operation that initialises these variables."""
    return group(*(v.initializer for v in variables), name=name)


def global_variables_initializer() -> Node:
    """An operation that initialises all `global_variables` made so far."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Node:
    """An operation that initialises all `local_variables` made so far, and the counters of epochs of input."""
    return group(*(v.initializer for v in local_variables()), *epoch_initializers(require_graph()), name="init")


def is_variable_initialized(variable: Variable) -> Tensor:
    """A bool tensor: whether the variable has a value."""
    return variable.is_initialized()


def report_uninitialized_variables(
    variables: Sequence[Variable] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """A string vector with the names of those of the variables that have no value.

    Args:
        variables: by default all global and local variables made so far.
    """
    chosen = _all_if_none(variables)
    with name_scope(name), device("/device:CPU:0"):
        if not chosen:
            return convert_to_tensor(np.empty(0, object))
        missing = ops.logical_not(ops.pack([v.is_initialized() for v in chosen], name="stack"))
        names = convert_to_tensor(np.array([v.op.name for v in chosen], object))
        return ops.gather_v2(names, ops.squeeze(ops.where(missing), squeeze_dims=[1]), 0)


def assert_variables_initialized(variables: Sequence[Variable] | None = None) -> Node:
    """An operation that fails if one of the variables has no value.

    Args:
        variables: by default all global and local variables made so far.
    """
    with name_scope("assert_variables_initialized"):
        return group(*[variable.read_value() for variable in _all_if_none(variables)])


def _all_if_none(variables: Sequence[Variable] | None) -> Sequence[Variable]:
    return global_variables() + local_variables() if variables is None else variables
