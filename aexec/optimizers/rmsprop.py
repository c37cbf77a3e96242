"""RMSProp and Ftrl: optimisers with two slots, or three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.framework import errors
from aexec.optimizers.optimizer import Optimizer, Update
from aexec.variables.initializers import Constant, Ones
from aexec.variables.variable import Variable

__all__ = ["FtrlOptimizer", "RMSPropOptimizer"]


class RMSPropOptimizer(Optimizer):
    """Steps divided by the root of a moving average of squares: Hinton's lecture 6e of 2012.

    `s = decay * s + (1 - decay) * gradient²; m = momentum * m + learning_rate * gradient / √(s + epsilon); v -= m`

    Args:
        centered: subtract the square of the gradients' moving average from `s`.
    """

    default_name = "RMSProp"

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        *,
        centered: bool = False,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._numbers |= {"decay": decay, "momentum": momentum, "epsilon": epsilon}
        self._centered = centered

    def create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_slot("rms", variable, Ones())
            if self._centered:
                self.add_slot("mg", variable)
            self.add_slot("momentum", variable)

    def update(self, variable: Variable, *, rows: bool) -> Update:
        keys = {"lr": "learning_rate", "rho": "decay", "momentum": "momentum", "epsilon": "epsilon"}
        inputs: dict[str, Any] = {key: self.number(name, variable.dtype) for key, name in keys.items()}
        inputs |= {"ms": self.slot(variable, "rms"), "mom": self.slot(variable, "momentum")}
        if not self._centered:
            return Update("RMSProp", inputs)
        return Update("CenteredRMSProp", {**inputs, "mg": self.slot(variable, "mg")})


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader: McMahan et al. 2013.

    Args:
        learning_rate_power: not positive; 0 for a constant rate.
        initial_accumulator_value: not negative.
        l2_shrinkage_regularization_strength: a magnitude penalty that does not enter the accumulators.

    Raises:
        InvalidArgumentError: a number is out of its range.
    """

    default_name = "Ftrl"

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        if learning_rate_power > 0:
            raise errors.InvalidValueError(f"learning_rate_power cannot be positive, got {learning_rate_power}")
        not_negative = {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        for key, value in not_negative.items():
            if value < 0:
                raise errors.InvalidValueError(f"{key} cannot be negative, got {value}")
        self._initial = initial_accumulator_value
        self._numbers |= {
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "learning_rate_power": learning_rate_power,
        }
        self._shrinks = l2_shrinkage_regularization_strength > 0
        if self._shrinks:
            self._numbers["l2_shrinkage"] = l2_shrinkage_regularization_strength

    def create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_slot("accum", variable, Constant(self._initial))
            self.add_slot("linear", variable)

    def update(self, variable: Variable, *, rows: bool) -> Update:
        keys = {
            "lr": "learning_rate",
            "l1": "l1_regularization_strength",
            "l2": "l2_regularization_strength",
            "lr_power": "learning_rate_power",
        }
        inputs: dict[str, Any] = {name: self.slot(variable, name) for name in ("accum", "linear")}
        inputs |= {key: self.number(name, variable.dtype) for key, name in keys.items()}
        if not self._shrinks:
            return Update("Ftrl", inputs)
        return Update("FtrlV2", {**inputs, "l2_shrinkage": self.number("l2_shrinkage", variable.dtype)})
