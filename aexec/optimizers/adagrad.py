"""Optimisers that divide by the root of accumulated squares: Adagrad and similar ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.optimizers.optimizer import Optimizer, Update
from aexec.variables.initializers import Constant
from aexec.variables.variable import Variable

__all__ = ["AdadeltaOptimizer", "AdagradDAOptimizer", "AdagradOptimizer", "ProximalAdagradOptimizer"]


class AdagradOptimizer(Optimizer):
    """`a += gradient²; v -= learning_rate * gradient / √a`: Duchi et al. 2011.

    Args:
        initial_accumulator_value: of `a`; positive.
    """

    default_name = "Adagrad"

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._initial = initial_accumulator_value

    def create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_slot("accumulator", variable, Constant(self._initial))

    def update(self, variable: Variable, *, rows: bool) -> Update:
        inputs = {"accum": self.slot(variable, "accumulator"), "lr": self.number("learning_rate", variable.dtype)}
        return Update("Adagrad", inputs)


class ProximalAdagradOptimizer(AdagradOptimizer):
    """Adagrad, then the proximal step of the penalties `l1 * |v| + l2 / 2 * v²`: Duchi and Singer 2009."""

    default_name = "ProximalAdagrad"

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1: Any = 0.0,
        l2: Any = 0.0,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, initial_accumulator_value, use_locking=use_locking, name=name)
        self._numbers |= {"l1_regularization_strength": l1, "l2_regularization_strength": l2}

    def update(self, variable: Variable, *, rows: bool) -> Update:
        costs = {key: self.number(f"{key}_regularization_strength", variable.dtype) for key in ("l1", "l2")}
        return Update("ProximalAdagrad", {**super().update(variable, rows=rows).inputs, **costs})


class AdagradDAOptimizer(Optimizer):
    """Adagrad with dual averaging, for sparse models: Duchi et al. 2011.

    Args:
        global_step: the number of steps so far, the same variable that `minimize` gets.
    """

    default_name = "AdagradDA"

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1: Any = 0.0,
        l2: Any = 0.0,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._numbers |= {"l1_regularization_strength": l1, "l2_regularization_strength": l2}
        self._initial = initial_gradient_squared_accumulator_value
        self._global_step = global_step

    def prepare(self) -> None:
        self._next_step = ops.identity(self._global_step) + 1

    def create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_slot("gradient_accumulator", variable)
            self.add_slot("gradient_squared_accumulator", variable, Constant(self._initial))

    def update(self, variable: Variable, *, rows: bool) -> Update:
        keys = {"lr": "learning_rate", "l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
        inputs = {
            "gradient_accumulator": self.slot(variable, "gradient_accumulator"),
            "gradient_squared_accumulator": self.slot(variable, "gradient_squared_accumulator"),
            "global_step": self._next_step,
            **{key: self.number(name, variable.dtype) for key, name in keys.items()},
        }
        return Update("AdagradDA", inputs)


class AdadeltaOptimizer(Optimizer):
    """Steps of the size of recent ones, divided by that of recent gradients: Zeiler 2012."""

    default_name = "Adadelta"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._numbers = {"lr": learning_rate, "rho": rho, "epsilon": epsilon}

    def create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_slot("accum", variable)
            self.add_slot("accum_update", variable)

    def update(self, variable: Variable, *, rows: bool) -> Update:
        slots = {name: self.slot(variable, name) for name in ("accum", "accum_update")}
        return Update("Adadelta", {**slots, **{key: self.number(key, variable.dtype) for key in self._numbers}})
