"""`OptimizerWrapper`: the base of optimizers that pass their gradients to another one.

Next to read: `loss_scale.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.optimizers.optimizer import GradientAndVariable, Optimizer
from aexec.variables.variable import Variable

__all__ = ["OptimizerWrapper"]


class OptimizerWrapper(Optimizer):
    """An optimizer whose gradients and slots are those of another one.

    Args:
        optimizer: the wrapped one.
        name: of the scope of its own nodes.
    """

    def __init__(self, optimizer: Optimizer, *, name: str | None = None) -> None:
        super().__init__(None, use_locking=optimizer.use_locking, name=name)
        self._numbers = {}
        self._optimizer = optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradientAndVariable]:
        """Like the wrapped optimizer's."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def slot(self, variable: Variable, name: str) -> Variable:
        return self._optimizer.slot(variable, name)

    @property
    def slot_names(self) -> list[str]:
        return self._optimizer.slot_names

    def variables(self) -> list[Variable]:
        return self._optimizer.variables()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._optimizer!r}>"
