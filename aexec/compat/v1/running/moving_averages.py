"""`tensorflow.python.training.moving_averages`: updates of averages that programs keep themselves.

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
        value: what it moves towards, of its shape.
        decay: near 1; a number or scalar tensor.
        zero_debias: as if the average had begun at zero, divide it by the weight of the values so far,
            `1 - decay ** n`.  Makes the variables `biased` and `local_step` beside it.
        name: of the update.

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
