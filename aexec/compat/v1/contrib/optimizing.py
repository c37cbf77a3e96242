"""`tf.contrib.layers.optimize_loss`: builds a whole training step in one call.

Next to read: `../networks/optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, name_scope
from aexec.client.clipping import clip_by_global_norm
from aexec.client.random_ops import truncated_normal
from aexec.compat.v1.networks import optimizers
from aexec.compat.v1.values.framework_ops import get_global_step
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.variables.initialization import trainable_variables
from aexec.variables.initializers import Constant
from aexec.variables.variable_scope import get_variable, variable_scope

__all__ = ["OPTIMIZER_CLS_NAMES", "multiply_gradients", "optimize_loss"]

_MOMENTUM: Any = optimizers.MomentumOptimizer

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Any]] = {
    "Adagrad": optimizers.AdagradOptimizer,
    "Adam": optimizers.AdamOptimizer,
    "Ftrl": optimizers.FtrlOptimizer,
    "Momentum": lambda learning_rate: _MOMENTUM(learning_rate, momentum=0.9),
    "RMSProp": optimizers.RMSPropOptimizer,
    "SGD": optimizers.GradientDescentOptimizer,
}


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Any = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[..., Any] | None = None,
    update_ops: Iterable[Any] | None = None,
    variables: Iterable[Any] | None = None,
    name: str | None = None,
    summaries: Iterable[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Tensor:
    """Build a training step; return a tensor that runs it and has the loss.

    Args:
        loss: a scalar.
        global_step: incremented by each step; None for the graph's, if there is one.
        learning_rate: a number or scalar tensor; None if the optimizer has one.
        optimizer: a name such as "Adam" or "SGD", a class, a function of the learning rate, or an optimizer.
        gradient_noise_scale: standard deviation of normal noise added to gradients, relative to a gradient's norm.
        gradient_multipliers: variable or its name → factor of its gradient.
        clip_gradients: upper bound of the gradients' global norm; or a function from (gradient, variable) pairs to
            such pairs.
        learning_rate_decay_fn: (learning rate, global step) → learning rate.
        update_ops: operations to run before the step; by default those in `GraphKeys.UPDATE_OPS`.
        variables: by default the trainable variables.
        summaries: ignored; no summaries are written.

    Raises:
        ValueError: an argument has another type, or no variable has a gradient.
    """
    value = convert_to_tensor(loss)
    graph = require_graph()
    step = get_global_step() if global_step is None else global_step
    with variable_scope(name, "OptimizeLoss"):
        updates = list(graph.collections.get(GraphKeys.UPDATE_OPS) if update_ops is None else update_ops)
        if updates:
            with control_dependencies(updates):
                value = ops.identity(value)
        rate = _rate(learning_rate)
        if learning_rate_decay_fn is not None:
            if rate is None or step is None:
                raise errors.InvalidValueError("learning_rate and global_step are required for learning_rate_decay_fn.")
            rate = learning_rate_decay_fn(rate, step)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(
            value,
            list(trainable_variables() if variables is None else variables),
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gradient_noise_scale is not None:
            pairs = [(_noisy(grad, gradient_noise_scale), variable) for grad, variable in pairs]
        if gradient_multipliers is not None:
            pairs = multiply_gradients(pairs, gradient_multipliers)
        if callable(clip_gradients):
            pairs = clip_gradients(pairs)
        elif clip_gradients is not None:
            gradients, _ = clip_by_global_norm([grad for grad, _ in pairs], clip_gradients)
            pairs = [(grad, variable) for grad, (_, variable) in zip(gradients, pairs, strict=True)]
        trained = chosen.apply_gradients(pairs, global_step=step if increment_global_step else None, name="train")
        with control_dependencies([trained]):
            return ops.identity(value)


def _rate(learning_rate: Any) -> Any:
    """The learning rate as a tensor; a number becomes a variable, so that the program can assign it."""
    if learning_rate is None or isinstance(learning_rate, Tensor):
        return learning_rate
    if not isinstance(learning_rate, float):
        return convert_to_tensor(learning_rate)
    if learning_rate < 0.0:
        raise errors.InvalidValueError(f"Invalid learning_rate {learning_rate}.")
    return get_variable("learning_rate", [], None, Constant(learning_rate), trainable=False)


def _optimizer(given: Any, rate: Any) -> Any:
    if isinstance(given, str):
        if rate is None:
            raise errors.InvalidValueError(f"Learning rate is None, but should be specified if using string ({given}).")
        if given not in OPTIMIZER_CLS_NAMES:
            raise errors.InvalidValueError(
                f"Optimizer name should be one of [{', '.join(OPTIMIZER_CLS_NAMES)}], you provided {given}."
            )
        return OPTIMIZER_CLS_NAMES[given](learning_rate=rate)
    if isinstance(given, optimizers.Optimizer):
        return given
    if isinstance(given, type) and issubclass(given, optimizers.Optimizer):
        return given(learning_rate=rate)  # type: ignore[call-arg]
    if not callable(given):
        raise errors.InvalidValueError(
            f"Unrecognized optimizer: should be string, Optimizer or function, got {given!r}"
        )
    return given() if rate is None else given(rate)


def _noisy(grad: Any, scale: float) -> Any:
    if grad is None:
        return None
    if isinstance(grad, IndexedSlices):
        noise = truncated_normal(ops.shape(grad.values))
        return IndexedSlices(grad.values + noise * scale, grad.indices, grad.dense_shape)
    return grad + truncated_normal(ops.shape(grad)) * scale


def multiply_gradients(pairs: Iterable[Any], factors: Any) -> list[Any]:
    """Multiply gradients by factors, which are given by variable or by the variable's name; return the pairs."""
    found = []
    with name_scope("multiplied"):
        for grad, variable in pairs:
            factor = factors.get(variable, factors.get(variable.name.rpartition(":")[0]))
            if grad is not None and factor is not None:
                if isinstance(grad, IndexedSlices):
                    grad = IndexedSlices(grad.values * factor, grad.indices, grad.dense_shape)
                else:
                    grad = grad * ops.cast(convert_to_tensor(factor), DstT=grad.dtype.base)
            found.append((grad, variable))
    return found
