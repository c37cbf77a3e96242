"""`tf.contrib.opt`: optimises a graph's variables with SciPy, and has optimizers with decoupled weight decay.

Next to read: `../networks/optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import control_dependencies, placeholder
from aexec.compat.v1.functions.control_flow_ops import gradients
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.networks.optimizers import AdamOptimizer, MomentumOptimizer
from aexec.compat.v1.platform.logging import info
from aexec.compat.v1.values.default_session import default_session
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.initialization import trainable_variables
from aexec.variables.variable import Variable

__all__ = ["AdamWOptimizer", "ExternalOptimizerInterface", "MomentumWOptimizer", "ScipyOptimizerInterface"]


def _sizes(variable: Variable) -> list[int]:
    return [int(size) for size in variable.static_shape if size is not None]


class ExternalOptimizerInterface:
    """Minimises a loss with an algorithm outside the graph, which a subclass implements in `_minimize`.

    Args:
        loss: a scalar.
        var_list: by default the trainable variables.
        equalities: scalars or vectors, constrained to 0.
        inequalities: scalars or vectors, constrained to be >= 0.
        var_to_bounds: variable → (lower bounds, upper bounds).
        optimizer_kwargs: settings of the algorithm.
    """

    def __init__(
        self,
        loss: Any,
        var_list: Iterable[Variable] | None = None,
        equalities: Sequence[Any] | None = None,
        inequalities: Sequence[Any] | None = None,
        var_to_bounds: Any = None,
        **optimizer_kwargs: Any,
    ) -> None:
        self._loss = loss
        self._vars = list(trainable_variables() if var_list is None else var_list)
        self._equalities = list(equalities or ())
        self._inequalities = list(inequalities or ())
        self.optimizer_kwargs = optimizer_kwargs
        self._sizes = [int(np.prod(_sizes(variable), dtype=np.int64)) for variable in self._vars]
        self._bounds = None if var_to_bounds is None else self._bounds_of(var_to_bounds)
        constraints = [ops.reshape(one, [-1]) for one in (*self._equalities, *self._inequalities)]
        self._loss_and_gradient = [loss, self._flat(gradients(loss, self._vars))]
        self._constraints = [(one, self._jacobian(one)) for one in constraints]
        self._fed = [placeholder(variable.dtype.base, _sizes(variable)) for variable in self._vars]
        self._update = [variable.assign(fed) for variable, fed in zip(self._vars, self._fed, strict=True)]

    def minimize(
        self,
        session: Any = None,
        feed_dict: Any = None,
        fetches: Sequence[Any] | None = None,
        step_callback: Callable[[Any], Any] | None = None,
        loss_callback: Callable[..., Any] | None = None,
        **run_kwargs: Any,
    ) -> None:
        """Minimise the loss, and assign the result to the variables.

        Args:
            session: by default the default session.
            fetches: computed with each loss, and passed to `loss_callback`.
            step_callback: called after each iteration with all variables as one vector.
            loss_callback: called with the values of `fetches` after each computation of the loss.
        """
        chosen = default_session() if session is None else session
        given, more = feed_dict or {}, list(fetches or ())
        first = np.concatenate([np.ravel(one) for one in chosen.run(self._vars)])

        def loss_at(x: Any) -> tuple[Any, Any]:
            self._assign(chosen, x)
            loss, gradient, *found = chosen.run([*self._loss_and_gradient, *more], given, **run_kwargs)
            if loss_callback is not None:
                loss_callback(*found)
            return loss, gradient.astype(np.float64)

        def constraint(tensors: Any) -> Callable[[Any], tuple[Any, Any]]:
            def at(x: Any) -> tuple[Any, Any]:
                self._assign(chosen, x)
                value, jacobian = chosen.run(tensors, given)
                return value.astype(np.float64), jacobian.astype(np.float64)

            return at

        at = [constraint(one) for one in self._constraints]
        many = len(self._equalities)
        last = self._minimize(
            first.astype(np.float64),
            loss_at,
            at[:many],
            at[many:],
            self._bounds,
            step_callback,
            dict(self.optimizer_kwargs),
        )
        self._assign(chosen, last)

    def _minimize(
        self,
        initial: Any,
        loss_at: Callable[[Any], tuple[Any, Any]],
        equalities: Sequence[Callable[[Any], tuple[Any, Any]]],
        inequalities: Sequence[Callable[[Any], tuple[Any, Any]]],
        bounds: Any,
        step_callback: Callable[[Any], Any] | None,
        settings: dict[str, Any],
    ) -> Any:
        """Return the vector at which the loss is minimal."""
        raise NotImplementedError("To use ExternalOptimizerInterface, subclass from it and implement _minimize().")

    def _split(self, x: Any) -> list[Any]:
        """Split a vector into the values of the variables."""
        parts = np.split(x, np.cumsum(self._sizes)[:-1])
        return [
            np.asarray(part, variable.dtype.base.dtype).reshape(_sizes(variable))
            for variable, part in zip(self._vars, parts, strict=True)
        ]

    def _assign(self, session: Any, x: Any) -> None:
        session.run(self._update, dict(zip(self._fed, self._split(x), strict=True)))

    def _bounds_of(self, by_variable: Any) -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []
        for variable, size in zip(self._vars, self._sizes, strict=True):
            low, high = by_variable.get(variable, (-np.inf, np.inf))
            shape = _sizes(variable)
            both = [np.broadcast_to(bound, shape).ravel() for bound in (low, high)]
            found += list(zip(*both, strict=True)) if size else []
        return found

    def _flat(self, grads: Sequence[Any]) -> Tensor:
        """Concatenate gradients to one vector, with zeros for variables that do not affect the loss."""
        parts = [
            ops.zeros_like(convert_to_tensor(variable)) if grad is None else convert_to_tensor(grad)
            for grad, variable in zip(grads, self._vars, strict=True)
        ]
        flat = [ops.reshape(part, [-1]) for part in parts]
        return flat[0] if len(flat) == 1 else ops.concat_v2(flat, 0)

    def _jacobian(self, vector: Tensor) -> Tensor:
        size = next(iter(vector.static_shape)) if vector.static_shape.rank else None
        if size is None:
            raise errors.InvalidValueError(f"the size of the constraint {vector.name} must be known")
        return ops.pack([self._flat(gradients(vector[row], self._vars)) for row in range(size)])


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """Minimises a loss by `scipy.optimize.minimize`, by default with L-BFGS-B, or with SLSQP for constraints."""

    _DEFAULT_METHOD = "L-BFGS-B"

    def _minimize(
        self,
        initial: Any,
        loss_at: Callable[[Any], tuple[Any, Any]],
        equalities: Sequence[Callable[[Any], tuple[Any, Any]]],
        inequalities: Sequence[Callable[[Any], tuple[Any, Any]]],
        bounds: Any,
        step_callback: Callable[[Any], Any] | None,
        settings: dict[str, Any],
    ) -> Any:
        import scipy.optimize

        constraints = [
            {"type": kind, "fun": lambda x, at=at: at(x)[0], "jac": lambda x, at=at: at(x)[1]}
            for kind, functions in (("eq", equalities), ("ineq", inequalities))
            for at in functions
        ]
        method = settings.pop("method", "SLSQP" if constraints else self._DEFAULT_METHOD)
        for refused in ("fun", "x0", "jac", "constraints", "bounds", "callback"):
            if refused in settings:
                raise errors.InvalidValueError(f"Optimizer keyword arg '{refused}' is set automatically")
        given = {} if not constraints else {"constraints": constraints}
        found = scipy.optimize.minimize(
            loss_at, initial, jac=True, method=method, bounds=bounds, callback=step_callback, **given, **settings
        )
        info(
            "Optimization terminated with: Message: %s Objective function value: %f Number of iterations: %s",
            found.message,
            found.fun,
            found.get("nit"),
        )
        return found.x


class _DecoupledWeightDecay:
    """Subtracts `weight_decay` times each variable from it, before the step: Loshchilov and Hutter 2017."""

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[Any],
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Iterable[Any] | None = None,
    ) -> Any:
        """Decay the variables in `decay_var_list`, by default all, then apply the gradients."""
        pairs = [(grad, variable) for grad, variable in grads_and_vars if grad is not None]
        decaying = None if decay_var_list is None else {id(variable) for variable in decay_var_list}
        # Gradients are those of the values before the decay.
        with control_dependencies([getattr(grad, "values", grad) for grad, _ in pairs]):
            decayed = [
                variable.assign_sub(
                    ops.cast(convert_to_tensor(self._weight_decay), DstT=variable.dtype.base) * variable
                )
                for _, variable in pairs
                if decaying is None or id(variable) in decaying
            ]
        with control_dependencies(decayed):
            return super().apply_gradients(pairs, global_step=global_step, name=name)  # type: ignore[misc]


class AdamWOptimizer(_DecoupledWeightDecay, AdamOptimizer):  # type: ignore[misc, valid-type]
    """Adam with decoupled weight decay.  Arguments are `weight_decay`, then those of `AdamOptimizer`."""


class MomentumWOptimizer(_DecoupledWeightDecay, MomentumOptimizer):  # type: ignore[misc, valid-type]
    """Momentum with decoupled weight decay.  Arguments are `weight_decay`, then those of `MomentumOptimizer`."""


__getattr__, __dir__ = namespace(
    __name__,
    {},
    {
        **dict.fromkeys(
            "AddSignOptimizer AdaMaxOptimizer GGTOptimizer PowerSignOptimizer ShampooOptimizer".split(),
            "subclass tf.train.Optimizer, with its formula in `_apply_dense`",
        ),
        "LazyAdamOptimizer": "use tf.train.AdamOptimizer",
        "MovingAverageOptimizer": "use tf.train.ExponentialMovingAverage",
        "NadamOptimizer": "subclass tf.train.AdamOptimizer",
    },
)
