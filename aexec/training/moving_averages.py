"""`ExponentialMovingAverage`: averages of variables over the steps, which often serve better than the last values.

::

    average = ExponentialMovingAverage(0.999)
    with aexec.control_dependencies([step]):
        train = average.apply()
    saver = Saver(average.variables_to_restore())  # for a program that serves: the averages under the variables

Names are TensorFlow's: `w/ExponentialMovingAverage`.  Next to read: `saver.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec import ops
from aexec.client.building import colocate_with, control_dependencies, group, name_scope
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.node import Node
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.variables.initialization import global_variables, moving_average_variables, trainable_variables
from aexec.variables.partitioned_variable import parts_or_self
from aexec.variables.variable import Variable

__all__ = ["ExponentialMovingAverage"]


class ExponentialMovingAverage:
    """`average -= (1 - decay) * (average - variable)`, beginning at the initial value of the variable.

    Args:
        decay: near 1; a number or scalar tensor.
        num_updates: counts updates, such as the global step.  The decay is no more than `(1 + n) / (10 + n)` then, so
            that averages move faster at first.
        name: of the averages and of the op.
    """

    def __init__(self, decay: Any, num_updates: Any = None, *, name: str = "ExponentialMovingAverage") -> None:
        self.name = name
        self._decay = decay
        self._num_updates = num_updates
        self._averages: dict[Variable, Variable] = {}

    def apply(self, variables: Iterable[Variable] | None = None) -> Node:
        """An operation that brings the averages up to date.

        Args:
            variables: by default all trainable ones.  They are added to `GraphKeys.MOVING_AVERAGE_VARIABLES`.

        Raises:
            InvalidArgumentError: one is not of floats, or no variable.
        """
        given = trainable_variables() if variables is None else list(variables)
        chosen = [part for variable in given for part in parts_or_self(variable)]
        for variable in chosen:
            if not isinstance(variable, Variable) or not variable.dtype.is_floating:
                raise errors.InvalidArgumentError(f"The variables must be of floats: {variable!r}")
            if variable not in self._averages:
                self._make(variable)
        with name_scope(self.name) as scope:
            decay = convert_to_tensor(self._decay, None, "decay")
            if self._num_updates is not None:
                count = ops.cast(convert_to_tensor(self._num_updates), DstT=decay.dtype.base)
                decay = ops.minimum(decay, (1.0 + count) / (10.0 + count))
            rest = 1.0 - decay
            return group(*(self._moved(variable, rest) for variable in chosen), name=scope)

    def _make(self, variable: Variable) -> None:
        with control_dependencies(None), name_scope(None), colocate_with(variable):
            made = Variable(
                variable.initialized_value(),
                trainable=False,
                name=f"{variable.op.name}/{self.name}",
                use_resource=variable.is_resource,
            )
        if variable.save_slice_info is not None:
            made.save_slice_info = variable.save_slice_info.beside(self.name, variable.static_shape.rank)
        self._averages[variable] = made
        collection = require_graph().collections.get_ref(GraphKeys.MOVING_AVERAGE_VARIABLES)
        if variable not in collection:
            collection.append(variable)

    def _moved(self, variable: Variable, rest: Any) -> Node:
        average = self._averages[variable]
        with name_scope("AssignMovingAvg"), colocate_with(average):
            delta = (average.read_value() - variable.read_value()) * ops.cast(rest, DstT=variable.dtype)
            moved: Node = average.assign_sub(delta, read_value=False)
            return moved

    def average(self, variable: Variable) -> Variable | None:
        """The average of a variable, or None if `apply` was not given it."""
        return self._averages.get(variable)

    def average_name(self, variable: Variable) -> str:
        """The name under which checkpoints have the average of a variable: also before there is one."""
        found = self._averages.get(variable)
        return f"{variable.op.name}/{self.name}" if found is None else found.op.name

    def variables_to_restore(self, variables: Iterable[Any] | None = None) -> dict[str, Variable | list[Variable]]:
        """For `Saver`: a mapping by which variables get the values of their averages, and others their own.

        Args:
            variables: of which there are averages in the checkpoint; by default the trainable ones, and those in
                `GraphKeys.MOVING_AVERAGE_VARIABLES`.
        """
        given = [*trainable_variables(), *moving_average_variables()] if variables is None else variables
        averaged = list(dict.fromkeys(part for variable in given for part in parts_or_self(variable)))
        taken = {*averaged, *self._averages.values()}
        names: dict[str, Variable | list[Variable]] = {}
        for variable in [*averaged, *(one for one in global_variables() if one not in taken)]:
            info = variable.save_slice_info
            mark = f"/{self.name}" if variable in taken else ""
            if info is None:
                names[self.average_name(variable) if mark else variable.op.name] = variable
            else:
                parts = names.setdefault(f"{info.full_name}{mark}", [])
                assert isinstance(parts, list)
                parts.append(variable)
        return names

    def __repr__(self) -> str:
        return f"<ExponentialMovingAverage '{self.name}' of {len(self._averages)} variables>"
