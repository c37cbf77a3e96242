"""`ExponentialMovingAverage`: averages of variables over the steps, which often serve better than the last values.

::

    average = ExponentialMovingAverage(0.999)
    with aexec.control_dependencies([step]):
        train = average.apply()
    saver = Saver(average.variables_to_restore())  # for a program that serves: the averages as the variables

Names are TensorFlow's: `w/ExponentialMovingAverage`.  Next to read: `saver.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec import ops
from aexec.client.building import colocate_with, control_dependencies, group, name_scope, zeros
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.variables.initialization import global_variables, moving_average_variables, trainable_variables
from aexec.variables.partitioned_variable import parts_or_self
from aexec.variables.variable import Variable

__all__ = ["ExponentialMovingAverage"]


class ExponentialMovingAverage:
    """`average -= (1 - decay) * (average - value)`.

    The average of a variable begins at its initial value, that of another tensor at zero.

    Args:
        decay: near 1; a number or scalar tensor.
        num_updates: counts updates, such as the global step.  The decay is then at most `(1 + n) / (10 + n)`, so that
            averages move faster at first.
        zero_debias: divide averages that began at zero by the weight of the values so far, `1 - decay ** n`.
        name: of the averages and of the op.
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        *,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self.name = name
        self._zero_debias = zero_debias
        self._decay = decay
        self._num_updates = num_updates
        self._averages: dict[Variable | Tensor, Variable] = {}

    def apply(self, variables: Iterable[Variable | Tensor] | None = None) -> Node:
        """An operation that updates the averages.

        Args:
            variables: variables, which are added to `GraphKeys.MOVING_AVERAGE_VARIABLES`, and other tensors; by default
                all trainable variables.

        Raises:
            InvalidArgumentError: one is not a tensor, or not of floats.
        """
        given = trainable_variables() if variables is None else list(variables)
        chosen = [part for variable in given for part in parts_or_self(variable)]
        for variable in chosen:
            if not isinstance(variable, Variable | Tensor) or not variable.dtype.is_floating:
                raise errors.InvalidValueError(f"The variables must be half, float, or double: {variable!r}")
            if variable not in self._averages:
                self._averages[variable] = self._made(variable)
        with name_scope(self.name) as scope:
            decay = convert_to_tensor(self._decay, None, "decay")
            if self._num_updates is not None:
                count = ops.cast(convert_to_tensor(self._num_updates), DstT=decay.dtype.base)
                decay = ops.minimum(decay, (1.0 + count) / (10.0 + count))
            rest = 1.0 - decay
            return group(*(self._moved(variable, rest) for variable in chosen), name=scope)

    def _made(self, value: Variable | Tensor) -> Variable:
        with control_dependencies(None), name_scope(None):
            if isinstance(value, Tensor):
                return self._variable(value, f"{value.op.name}/{self.name}", _zeros(value))
            with colocate_with(value):
                made = self._variable(value, f"{value.op.name}/{self.name}", value.initialized_value())
        if value.save_slice_info is not None:
            made.save_slice_info = value.save_slice_info.beside(self.name, value.static_shape.rank)
        collection = require_graph().collections.get_ref(GraphKeys.MOVING_AVERAGE_VARIABLES)
        if value not in collection:
            collection.append(value)
        return made

    def _variable(self, value: Variable | Tensor, name: str, first: Any) -> Variable:
        form = value.is_resource if isinstance(value, Variable) else False
        known = value.static_shape.is_fully_defined
        return Variable(first, trainable=False, name=name, use_resource=form, validate_shape=known)

    def _moved(self, value: Variable | Tensor, rest: Any) -> Node:
        average = self._averages[value]
        with name_scope("AssignMovingAvg"), colocate_with(average):
            now = value.read_value() if isinstance(value, Variable) else value
            rest = ops.cast(rest, DstT=value.dtype.base)
            if self._zero_debias and isinstance(value, Tensor):
                return self._debiased(average, now, rest)
            delta = (average.read_value() - now) * rest
            moved: Node = average.assign_sub(delta, read_value=False)
            return moved

    def _debiased(self, average: Variable, now: Tensor, rest: Tensor) -> Node:
        """Update a hidden average beside `average`, and set `average` to it without the weight of the initial zero."""
        with control_dependencies(None), name_scope(None):
            biased = self._variable(now, f"{average.op.name}/biased", _zeros(now))
            steps = Variable(zeros([], average.dtype), trainable=False, name=f"{average.op.name}/local_step")
        seen = biased.assign_sub((biased.read_value() - now) * rest)
        weight = 1.0 - ops.pow(1.0 - rest, steps.assign_add(1.0))
        moved: Node = average.assign(seen / weight, read_value=False)
        return moved

    def average(self, variable: Variable | Tensor) -> Variable | None:
        """The average of a variable or tensor, or None if `apply` was not given it."""
        return self._averages.get(variable)

    def average_name(self, variable: Variable | Tensor) -> str:
        """The name in checkpoints of the average of a variable, also before there is one."""
        found = self._averages.get(variable)
        return f"{variable.op.name}/{self.name}" if found is None else found.op.name

    def variables_to_restore(self, variables: Iterable[Any] | None = None) -> dict[str, Variable | list[Variable]]:
        """A mapping for `Saver`, by which variables are restored from their averages, and others from their own values.

        Args:
            variables: the variables with averages in the checkpoint; by default the trainable ones, and those in
                `GraphKeys.MOVING_AVERAGE_VARIABLES`.
        """
        given = [*trainable_variables(), *moving_average_variables()] if variables is None else variables
        averaged = list(dict.fromkeys(part for variable in given for part in parts_or_self(variable)))
        # Averages of tensors are restored under their own names, as no variable takes their values.
        taken = {*averaged, *(average for of, average in self._averages.items() if isinstance(of, Variable))}
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


def _zeros(value: Tensor) -> Tensor:
    """Zeros of the shape of a tensor, which is computed in the run only if it is unknown."""
    shape = value.static_shape
    if shape.is_fully_defined:
        return zeros([int(size) for size in shape if size is not None], value.dtype.base)
    return ops.zeros_like(value)
