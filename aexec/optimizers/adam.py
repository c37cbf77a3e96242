"""Adam and similar optimisers: steps of the size of the first moment over the root of the second."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from aexec import ops
from aexec.client.building import colocate_with, control_dependencies, group
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node, Tensor
from aexec.optimizers.optimizer import Optimizer, Update
from aexec.variables.variable import Variable

__all__ = ["AdamOptimizer", "AdamWOptimizer", "LambOptimizer"]


class AdamOptimizer(Optimizer):
    """Moving averages of the gradient and of its square, corrected for their start at zero: Kingma and Ba 2015.

    `m = beta1 * m + (1 - beta1) * g; s = beta2 * s + (1 - beta2) * g²`
    `v -= learning_rate * √(1 - beta2^t) / (1 - beta1^t) * m / (√s + epsilon)`

    A sparse gradient changes all rows whose averages are not zero, as in TensorFlow.

    Args:
        amsgrad: `s` never decreases, Reddi et al. 2018; for resource variables and dense gradients.
    """

    default_name = "Adam"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        *,
        amsgrad: bool = False,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, use_locking=use_locking, name=name)
        self._numbers |= {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        self._amsgrad = amsgrad
        self._powers: list[Variable] = []

    def create_slots(self, variables: Sequence[Variable]) -> None:
        if not self._powers:
            first = min(variables, key=lambda variable: variable.name)
            with colocate_with(first):
                self._powers = [
                    Variable(
                        self._numbers[key],
                        trainable=False,
                        name=f"{key}_power",
                        dtype=first.dtype,
                        use_resource=first.is_resource,
                    )
                    for key in ("beta1", "beta2")
                ]
        for variable in variables:
            self.add_slot("m", variable)
            self.add_slot("v", variable)
            if self._amsgrad:
                self.add_slot("vhat", variable)

    def variables(self) -> list[Variable]:
        return self._powers + super().variables()

    def powers(self, variable: Variable) -> list[Any]:
        """`beta1` and `beta2` to the power of the step's number, in the variable's type."""
        return [p if p.dtype is variable.dtype else ops.cast(p, DstT=variable.dtype) for p in self._powers]

    def update(self, variable: Variable, *, rows: bool) -> Update:
        keys = {"lr": "learning_rate", "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}
        inputs: dict[str, Any] = {key: self.number(name, variable.dtype) for key, name in keys.items()}
        inputs |= dict(zip(("beta1_power", "beta2_power"), self.powers(variable), strict=True))
        inputs |= {name: self.slot(variable, name) for name in ("m", "v")}
        if not self._amsgrad:
            return Update("Adam", inputs)
        if not variable.is_resource:
            raise errors.InvalidValueError(
                f"amsgrad is for variables in resource form; '{variable.name}' is in reference form: see use_resource"
            )
        return Update("AdamWithAmsgrad", {**inputs, "vhat": self.slot(variable, "vhat")})

    def apply_rows(self, variable: Variable, grad: Tensor, rows: Tensor) -> Node:
        if self._amsgrad:
            raise errors.InvalidValueError(f"amsgrad takes no gradients of rows, which '{variable.name}' has")
        rate, beta1, beta2, epsilon = [
            self.number(name, variable.dtype) for name in ("learning_rate", "beta1", "beta2", "epsilon")
        ]
        power1, power2 = self.powers(variable)
        rate = rate * ops.sqrt(1.0 - power2) / (1.0 - power1)
        m = self._average("m", variable, beta1, grad, rows)
        s = self._average("v", variable, beta2, grad * grad, rows)
        step = rate * m / (ops.sqrt(s) + epsilon)
        return group(variable.assign_sub(step, use_locking=self.use_locking, read_value=False), m, s)

    def _average(self, name: str, variable: Variable, beta: Tensor, value: Tensor, rows: Tensor) -> Tensor:
        """A moving average after a step in which only some rows have a value."""
        slot = self.slot(variable, name)
        decayed: Node = slot.assign(slot.as_tensor() * beta, use_locking=self.use_locking, read_value=False)
        with control_dependencies([decayed]):
            slices = IndexedSlices(value * (1.0 - beta), rows)
            return slot.scatter_add(slices, use_locking=self.use_locking)

    def finish(self, updates: list[Node], name: str) -> Node:
        with control_dependencies(updates), colocate_with(self._powers[0]):
            powers = [
                power.assign(power * self.number(key, power.dtype), use_locking=True, read_value=False)
                for power, key in zip(self._powers, ("beta1", "beta2"), strict=True)
            ]
        return group(*updates, *powers, name=name)


class AdamWOptimizer(AdamOptimizer):
    """Adam, with a weight decay that does not enter its averages: Loshchilov and Hutter 2019.

    Before each step, `v -= weight_decay * v`: the decay is not scaled by the learning rate.
    """

    default_name = "AdamW"

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        *,
        amsgrad: bool = False,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, amsgrad=amsgrad, use_locking=use_locking, name=name)
        self._numbers["weight_decay"] = weight_decay

    def apply_whole(self, variable: Variable, grad: Tensor) -> Node:
        with self._decayed(variable, grad):
            return super().apply_whole(variable, grad)

    def apply_rows(self, variable: Variable, grad: Tensor, rows: Tensor) -> Node:
        with self._decayed(variable, grad):
            return super().apply_rows(variable, grad, rows)

    def _decayed(self, variable: Variable, grad: Tensor) -> AbstractContextManager[None]:
        """Context manager: nodes made inside run after the decay, which runs after the gradient of the old value."""
        with control_dependencies([grad]):
            decay = variable.read_value() * self.number("weight_decay", variable.dtype)
            return control_dependencies([variable.assign_sub(decay, read_value=False)])


class LambOptimizer(AdamOptimizer):
    """Adam's step, scaled for each variable by its norm over that of the step: You et al. 2020.

    Args:
        weight_decay: added to the step, times the variable.
    """

    default_name = "Lamb"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-6,
        weight_decay: Any = 0.0,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking=use_locking, name=name)
        self._numbers["weight_decay"] = weight_decay

    def apply_whole(self, variable: Variable, grad: Tensor) -> Node:
        rate, beta1, beta2, epsilon, decay = [
            self.number(name, variable.dtype) for name in ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay")
        ]
        power1, power2 = self.powers(variable)
        m = self._moved("m", variable, beta1, grad)
        s = self._moved("v", variable, beta2, grad * grad)
        value = variable.as_tensor()
        step = m / (1.0 - power1) / (ops.sqrt(s / (1.0 - power2)) + epsilon) + decay * value
        of_value, of_step = _norm(value), _norm(step)
        both = ops.logical_and(ops.greater(of_value, 0.0), ops.greater(of_step, 0.0))
        ratio = ops.select_v2(both, ops.div_no_nan(of_value, of_step), 1.0)
        changed: Node = variable.assign_sub(ratio * rate * step, use_locking=self.use_locking, read_value=False)
        return changed

    def apply_rows(self, variable: Variable, grad: Tensor, rows: Tensor) -> Node:
        shape = ops.shape(variable, out_type=rows.dtype.base)
        return self.apply_whole(variable, ops.scatter_nd(ops.expand_dims(rows, 1), grad, shape))

    def _moved(self, name: str, variable: Variable, beta: Tensor, value: Tensor) -> Tensor:
        slot = self.slot(variable, name)
        moved: Tensor = slot.assign(slot.as_tensor() * beta + value * (1.0 - beta))
        return moved


def _norm(value: Tensor) -> Tensor:
    return ops.sqrt(ops.sum(ops.square(value), list(range(value.static_shape.rank or 0))))
