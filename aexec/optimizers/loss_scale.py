"""Loss scaling: gradients in half precision that do not vanish, Micikevicius et al. 2018.

Computations in float16 lose small gradients.  So the loss is multiplied by a scale before it is differentiated, and
the gradients are divided by it afterwards.  A scale that is too large gives infinite gradients: a `DynamicLossScale`
skips such a step and decreases, and increases again after many good steps.

::

    optimizer = LossScaleOptimizer(AdamOptimizer(0.01), DynamicLossScale())
    step = optimizer.minimize(loss, global_step=count)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from aexec import ops
from aexec.client.building import control_dependencies, group, name_scope
from aexec.control_flow.cond import cond
from aexec.framework import dtypes, errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.optimizers.optimizer import GradientAndVariable, Optimizer
from aexec.optimizers.optimizer_wrapper import OptimizerWrapper
from aexec.variables.variable import Variable

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "LossScaleOptimizer", "LossScaleUpdate"]


class LossScaleUpdate(NamedTuple):
    """The change of a scale after a step.

    Attributes:
        op: changes the scale.
        should_apply: a bool tensor: True if the gradients are good; None if they are applied in any case.
    """

    op: Node
    should_apply: Tensor | None


class LossScale(Protocol):
    """The factor of a loss."""

    def value(self) -> Tensor:
        """The present scale, a float32 scalar."""

    def update(self, gradients: Sequence[Any]) -> LossScaleUpdate:
        """The change of the scale after these gradients, which were divided by it."""


class FixedLossScale:
    """A constant scale.

    Raises:
        InvalidArgumentError: the scale is less than 1.
    """

    def __init__(self, scale: float) -> None:
        if scale < 1:
            raise errors.InvalidValueError(f"loss_scale must be at least 1, got {scale}")
        self._scale = float(scale)

    def value(self) -> Tensor:
        """The scale, a float32 scalar."""
        return convert_to_tensor(self._scale, dtypes.float32, "loss_scale")

    def update(self, gradients: Sequence[Any]) -> LossScaleUpdate:
        """An update that changes nothing."""
        return LossScaleUpdate(group(), None)

    def __repr__(self) -> str:
        return f"<FixedLossScale {self._scale:g}>"


class DynamicLossScale:
    """A scale that is as large as gradients allow.  It belongs to one graph, whose variables it keeps.

    Args:
        initial: the first scale; too large is better than too small, since that is soon corrected.
        increment_period: after this many consecutive good steps it increases.
        multiplier: the factor by which it then increases, and by which it decreases after a bad step; it is never below
            1.

    Raises:
        InvalidArgumentError: a number is not in [1, ∞).
    """

    def __init__(self, initial: float = 2.0**15, increment_period: int = 2000, multiplier: float = 2.0) -> None:
        if min(initial, increment_period, multiplier) < 1:
            raise errors.InvalidValueError("initial, increment_period and multiplier must be at least 1")
        self._initial = float(initial)
        self._period = int(increment_period)
        self._multiplier = float(multiplier)
        self._kept: tuple[Variable, Variable] | None = None

    def _variables(self) -> tuple[Variable, Variable]:
        graph = require_graph().outermost
        if self._kept is None:
            with graph, name_scope(None), control_dependencies(None):
                self._kept = (
                    Variable(self._initial, trainable=False, name="current_loss_scale"),
                    Variable(0, trainable=False, dtype=dtypes.int64, name="good_steps"),
                )
        elif self._kept[0].graph is not graph:
            raise errors.InvalidValueError(f"{self!r} is of another graph")
        return self._kept

    def value(self) -> Tensor:
        """The present scale, a float32 scalar."""
        return ops.identity(self._variables()[0])

    def update(self, gradients: Sequence[Any]) -> LossScaleUpdate:
        """An update that increases it after the last of many good steps, and decreases it for infinite or NaN
        gradients.
        """
        scale, good = self._variables()
        finite = _all_finite(gradients)

        def larger() -> Tensor:
            new = scale.value() * self._multiplier
            # An infinite scale would stay infinite.
            return ops.select_v2(ops.is_finite(new), new, scale.value())

        def after_good() -> list[Tensor]:
            counted = good.value() + 1
            is_due = ops.greater_equal(counted, self._period)
            return [ops.select_v2(is_due, larger(), scale.value()), ops.select_v2(is_due, 0 * counted, counted)]

        def after_bad() -> list[Tensor]:
            return [ops.maximum(scale.value() / self._multiplier, 1.0), 0 * good.value()]

        new_scale, new_good = cond(finite, after_good, after_bad)
        # Both are computed before one of them changes.
        with control_dependencies([new_scale, new_good]):
            changes = [scale.assign(new_scale, read_value=False), good.assign(new_good, read_value=False)]
        return LossScaleUpdate(group(*changes), finite)

    def __repr__(self) -> str:
        return f"<DynamicLossScale from {self._initial:g}, times {self._multiplier:g} after {self._period} good steps>"


def _all_finite(gradients: Sequence[Any]) -> Tensor:
    found = [gradient.values if isinstance(gradient, IndexedSlices) else gradient for gradient in gradients]
    each = [ops.all(ops.reshape(ops.is_finite(value), [-1]), [0]) for value in found]
    return ops.all(ops.pack(each), [0])


class LossScaleOptimizer(OptimizerWrapper):
    """An optimizer that differentiates the scaled loss, and passes the unscaled gradients to another one.

    Args:
        optimizer: applies the gradients if they are good; otherwise neither variables nor the global step change.
        loss_scale: `DynamicLossScale`, `FixedLossScale`, or a number for the latter.
    """

    default_name = "loss_scale_optimizer"

    def __init__(self, optimizer: Optimizer, loss_scale: LossScale | float, *, name: str | None = None) -> None:
        super().__init__(optimizer, name=name)
        self.loss_scale: LossScale = FixedLossScale(loss_scale) if isinstance(loss_scale, int | float) else loss_scale

    def compute_gradients(self, loss: Tensor, *args: Any, **kwargs: Any) -> list[GradientAndVariable]:
        """Like the wrapped optimizer's: computed with the scale, returned without it."""
        with name_scope(self.name):
            scaled = loss * ops.cast(self.loss_scale.value(), DstT=loss.dtype.base)
        pairs = self._optimizer.compute_gradients(scaled, *args, **kwargs)
        with name_scope(self.name):
            share = ops.reciprocal(self.loss_scale.value())
            return [(_times(grad, share), variable) for grad, variable in pairs]

    def apply_gradients(
        self,
        gradients_and_variables: Iterable[GradientAndVariable],
        *,
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Node:
        """Apply the gradients if they are good, and change the scale.  Arguments and errors as of `Optimizer`."""
        pairs = [(grad, variable) for grad, variable in gradients_and_variables if grad is not None]
        if not pairs:
            raise errors.InvalidValueError("No gradients provided for any variable")
        update, should_apply = self.loss_scale.update([grad for grad, _ in pairs])

        def applied() -> Node:
            return self._optimizer.apply_gradients(pairs, global_step=global_step)

        done = applied() if should_apply is None else cond(should_apply, applied, group)
        return group(done, update, name=name or self.name)


def _times(grad: Any, factor: Tensor) -> Any:
    if grad is None:
        return None
    if isinstance(grad, IndexedSlices):
        return grad._replace(values=_times(grad.values, factor))
    return grad * ops.cast(factor, DstT=grad.dtype.base)
