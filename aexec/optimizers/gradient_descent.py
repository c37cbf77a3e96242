"""Gradient descent: plain, with momentum, and with a proximal step for L1 and L2 penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import create_node
from aexec.optimizers.optimizer import Optimizer, Update
from aexec.variables.variable import Variable

__all__ = ["GradientDescentOptimizer", "MomentumOptimizer", "ProximalGradientDescentOptimizer"]


class GradientDescentOptimizer(Optimizer):
    """`v -= learning_rate * gradient`."""

    default_name = "GradientDescent"

    def apply_whole(self, variable: Variable, grad: Tensor) -> Node:
        op = "ResourceApplyGradientDescent" if variable.is_resource else "ApplyGradientDescent"
        inputs = {"var": variable, "alpha": self.number("learning_rate", variable.dtype), "delta": grad}
        return create_node(op, inputs, {"use_locking": self.use_locking})

    def apply_rows(self, variable: Variable, grad: Tensor, rows: Tensor) -> Node:
        step = grad * self.number("learning_rate", variable.dtype)
        slices = IndexedSlices(step, rows)
        return variable.scatter_sub(slices, use_locking=self.use_locking).op


class MomentumOptimizer(Optimizer):
    """`m = momentum * m + gradient; v -= learning_rate * m`.

    Args:
        use_nesterov: `v -= learning_rate * (gradient + momentum * m)`, Sutskever et al. 2013.
    """

    default_name = "Momentum"

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        *,
        use_nesterov: bool = False,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._numbers["momentum"] = momentum
        self._use_nesterov = use_nesterov

    def create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_slot("momentum", variable)

    def update(self, variable: Variable, *, rows: bool) -> Update:
        inputs = {
            "accum": self.slot(variable, "momentum"),
            "lr": self.number("learning_rate", variable.dtype),
            "momentum": self.number("momentum", variable.dtype),
        }
        return Update("Momentum", inputs, {"use_nesterov": self._use_nesterov})


class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent, then the proximal step of the penalties `l1 * |v| + l2 / 2 * v²`: Duchi and Singer 2009."""

    default_name = "ProximalGradientDescent"

    def __init__(
        self,
        learning_rate: Any,
        l1: Any = 0.0,
        l2: Any = 0.0,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._numbers |= {"l1_regularization_strength": l1, "l2_regularization_strength": l2}

    def update(self, variable: Variable, *, rows: bool) -> Update:
        keys = {"alpha": "learning_rate", "l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
        inputs = {key: self.number(name, variable.dtype) for key, name in keys.items()}
        return Update("ProximalGradientDescent", inputs)

    def apply_whole(self, variable: Variable, grad: Tensor) -> Node:
        return self._apply(self.update(variable, rows=False), variable, {"delta": grad})
