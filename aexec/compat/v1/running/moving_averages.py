"""`tensorflow.python.training.moving_averages`: updates a moving average that the program keeps in a variable.

Next to read: `aexec/training/moving_averages.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.initializers import Zeros
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import get_variable, variable_scope

__all__ = ["assign_moving_average"]


def assign_moving_average(
    variable: Variable, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """Move a variable towards a value: `variable -= (1 - decay) * (variable - value)`.

    Args:
        variable: the average.
        value: the value to move towards, of the variable's shape.
        decay: a number or scalar tensor in [0, 1), usually near 1.
        zero_debias: correct the bias of an average that starts at 0: keep the biased average in a variable `biased`,
            and assign it divided by `1 - decay ** n` after n updates, which the variable `local_step` counts.
        name: scope of the update's nodes.

    Returns:
        The variable after the update.
    """
    dtype = variable.dtype.base
    with name_scope(name or "AssignMovingAvg"):
        rate = 1.0 - convert_to_tensor(decay, dtype)
        if not zero_debias:
            return variable.assign_sub((variable - value) * rate)
        with variable_scope(variable.name.rpartition(":")[0]):
            biased = get_variable("biased", list(variable.static_shape), dtype, Zeros(), trainable=False)
            steps = get_variable("local_step", [], dtype, Zeros(), trainable=False)
        moved = biased.assign_sub((biased - value) * rate)
        return variable.assign(moved / (1.0 - ops.pow(1.0 - rate, steps.assign_add(1.0))))
