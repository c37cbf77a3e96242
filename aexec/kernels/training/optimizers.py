"""The formulas of the optimisers: each changes a variable and its slots in place, given a gradient.

A formula is called with the array module, with arrays of one shape that it may write to (whole variables, or the rows
that a sparse gradient names), and with the op's other inputs and attrs by name.  All arithmetic is in the variable's
type, as TensorFlow's.  Next to read: `training_ops.py`, which finds the variables and calls these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass

__all__ = ["OPTIMISERS", "Formula", "Limits", "Optimiser"]

Formula = Callable[..., None]

_ALL = (*dtypes.COMPLEX, *dtypes.FLOAT)
_REAL = dtypes.FLOAT
_NATIVE = (dtypes.float16, dtypes.float32, dtypes.float64)
_WIDE = (dtypes.float32, dtypes.float64)

# Conditions on scalars: the words of the error, and the test.
_POSITIVE = ("not a positive scalar", lambda value, options: value > 0)
_POSITIVE_OR_UNUSED = (
    "not a positive scalar (or zero if multiply_linear_by_lr is set)",
    lambda value, options: value > 0 or (value == 0 and options["multiply_linear_by_lr"]),
)
_NOT_NEGATIVE = ("not a non-negative scalar", lambda value, options: value >= 0)
_NOT_POSITIVE = ("not a non-positive scalar", lambda value, options: value <= 0)
_PROXIMAL_LIMITS = {"lr": _POSITIVE, "l1": _NOT_NEGATIVE, "l2": _NOT_NEGATIVE}
_FTRL_LIMITS = {
    "lr": _POSITIVE_OR_UNUSED,
    "l1": _NOT_NEGATIVE,
    "l2": _NOT_NEGATIVE,
    "l2_shrinkage": _NOT_NEGATIVE,
    "lr_power": _NOT_POSITIVE,
}

Limits = Mapping[str, tuple[str, Callable[[Any, Mapping[str, Any]], bool]]]


@dataclass(frozen=True, slots=True)
class Optimiser:
    """The properties of one optimiser.

    Attributes:
        formula: changes arrays in place.
        slots: names of the inputs, besides the variable, that are changed, too.
        types, sparse_types: types that the dense and the sparse ops take; none if there is no such op.
        limits, sparse_limits: scalar → the condition of the dense and the sparse ops on it.
        has_ref_ops: there are ops on ref variables, not only on resource variables.
        loop: does the same as the formula by a loop in C, for arrays that the loops take, all different; None if there
            is no loop for it.  It returns False, and changes nothing, if there is none for these options.
    """

    formula: Formula
    slots: tuple[str, ...]
    types: Iterable[DType] = ()
    sparse_types: Iterable[DType] = ()
    limits: Limits = field(default_factory=dict)
    sparse_limits: Limits = field(default_factory=dict)
    has_ref_ops: bool = True
    loop: Callable[..., bool] | None = None

    def update(self, xp: Any, *arrays: Any, grad: Any, **known: Any) -> None:
        """Change the arrays by the formula, in C where that is possible."""
        loop, loops = self.loop, native.loops
        if loop and loops and native.are_single(*arrays, grad) and loop(loops, *arrays, grad=grad, **known):
            return
        self.formula(xp, *arrays, grad=grad, **known)


def _approach(average: Any, value: Any, rest: Any) -> None:
    """Move a moving average towards a value by the fraction `rest` of the difference."""
    step = value - average
    step *= rest
    average += step


def _shrink(xp: Any, values: Any, threshold: Any) -> Any:
    """Move values towards zero by `threshold`; those that are nearer become zero."""
    return xp.sign(values) * xp.maximum(xp.abs(values) - threshold, 0)


def _gradient_descent(xp: Any, var: Any, *, alpha: Any, grad: Any) -> None:
    var -= grad * alpha


def _proximal_gradient_descent(xp: Any, var: Any, *, alpha: Any, l1: Any, l2: Any, grad: Any) -> None:
    var -= grad * alpha
    var[...] = _shrink(xp, var, alpha * xp.maximum(l1, 0)) / (1 + l2 * alpha)


def _momentum(xp: Any, var: Any, accum: Any, *, lr: Any, grad: Any, momentum: Any, use_nesterov: bool) -> None:
    accum *= momentum
    accum += grad
    var -= (grad + accum * momentum) * lr if use_nesterov else accum * lr


def _keras_momentum(xp: Any, var: Any, accum: Any, *, lr: Any, grad: Any, momentum: Any, use_nesterov: bool) -> None:
    step = grad * lr
    accum *= momentum
    accum -= step
    var += accum * momentum - step if use_nesterov else accum


def _adagrad(xp: Any, var: Any, accum: Any, *, lr: Any, grad: Any, update_slots: bool, epsilon: Any = None) -> None:
    if update_slots:
        accum += xp.square(grad)
    root = xp.sqrt(accum)
    var -= grad * lr / (root if epsilon is None else root + epsilon)


def _proximal_adagrad(xp: Any, var: Any, accum: Any, *, lr: Any, l1: Any, l2: Any, grad: Any) -> None:
    accum += xp.square(grad)
    rate = lr / xp.sqrt(accum)
    var -= grad * rate
    var[...] = _shrink(xp, var, rate * l1) / (1 + l2 * rate)


def _adagrad_da(
    xp: Any, var: Any, total: Any, squares: Any, *, grad: Any, lr: Any, l1: Any, l2: Any, global_step: Any
) -> None:
    total += grad
    squares += xp.square(grad)
    steps = global_step.astype(var.dtype)
    var[...] = -lr * _shrink(xp, total, xp.maximum(l1, 0) * steps) / (l2 * steps * lr + xp.sqrt(squares))


def _adadelta(xp: Any, var: Any, accum: Any, accum_update: Any, *, lr: Any, rho: Any, epsilon: Any, grad: Any) -> None:
    accum *= rho
    accum += xp.square(grad) * (1 - rho)
    update = xp.sqrt(accum_update + epsilon) / xp.sqrt(accum + epsilon) * grad
    var -= update * lr
    accum_update *= rho
    accum_update += xp.square(update) * (1 - rho)


def _adam_rate(xp: Any, lr: Any, beta1_power: Any, beta2_power: Any) -> Any:
    return lr * xp.sqrt(1 - beta2_power) / (1 - beta1_power)


def _adam(
    xp: Any, var: Any, m: Any, v: Any, *, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any,
    epsilon: Any, grad: Any, use_nesterov: bool,
) -> None:  # fmt: skip
    rate = _adam_rate(xp, lr, beta1_power, beta2_power)
    _approach(m, grad, 1 - beta1)
    _approach(v, xp.square(grad), 1 - beta2)
    step = (grad * (1 - beta1) + beta1 * m if use_nesterov else m) * rate
    root = xp.sqrt(v)
    root += epsilon
    step /= root
    var -= step


def _adam_with_amsgrad(
    xp: Any, var: Any, m: Any, v: Any, vhat: Any, *, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any,
    beta2: Any, epsilon: Any, grad: Any,
) -> None:  # fmt: skip
    rate = _adam_rate(xp, lr, beta1_power, beta2_power)
    _approach(m, grad, 1 - beta1)
    _approach(v, xp.square(grad), 1 - beta2)
    xp.maximum(vhat, v, out=vhat)
    var -= m * rate / (xp.sqrt(vhat) + epsilon)


def _ada_max(
    xp: Any, var: Any, m: Any, v: Any, *, beta1_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
) -> None:
    _approach(m, grad, 1 - beta1)
    xp.maximum(beta2 * v, xp.abs(grad), out=v)
    var -= lr / (1 - beta1_power) * (m / (v + epsilon))


def _rms_prop(
    xp: Any, var: Any, ms: Any, mom: Any, *, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> None:
    _approach(ms, xp.square(grad), 1 - rho)
    mom *= momentum
    mom += grad * lr / xp.sqrt(ms + epsilon)
    var -= mom


def _centered_rms_prop(
    xp: Any, var: Any, mg: Any, ms: Any, mom: Any, *, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> None:
    _approach(ms, xp.square(grad), 1 - rho)
    _approach(mg, grad, 1 - rho)
    mom *= momentum
    mom += grad * lr / xp.sqrt(ms - xp.square(mg) + epsilon)
    var -= mom


def _add_sign(xp: Any, var: Any, m: Any, *, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any) -> None:
    _approach(m, grad, 1 - beta)
    var -= lr * (alpha + sign_decay * (xp.sign(grad) * xp.sign(m))) * grad


def _power_sign(xp: Any, var: Any, m: Any, *, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any) -> None:
    _approach(m, grad, 1 - beta)
    var -= lr * xp.exp(logbase * sign_decay * (xp.sign(grad) * xp.sign(m))) * grad


def _ftrl(
    xp: Any, var: Any, accum: Any, linear: Any, *, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any,
    multiply_linear_by_lr: bool, l2_shrinkage: Any = None,
) -> None:  # fmt: skip
    # Either the linear term and the penalties are multiplied by the rate, or the rest is divided by it.
    times, divisor = (lr, 1) if multiply_linear_by_lr else (1, lr)
    new_accum = accum + xp.square(grad)
    root, new_root = (xp.sqrt(a) if lr_power == -0.5 else xp.power(a, -lr_power) for a in (accum, new_accum))
    penalised = grad if l2_shrinkage is None else grad + 2 * l2_shrinkage * var
    linear += penalised * times - (new_root - root) / divisor * var
    clipped = xp.maximum(xp.minimum(linear, l1 * times), -l1 * times)
    var[...] = (clipped - linear) / (new_root / divisor + 2 * l2 * times)
    accum[...] = new_accum


# The same by loops in C.


def _gradient_descent_loop(loops: Any, var: Any, *, alpha: Any, grad: Any) -> bool:
    loops.gradient_descent(var, grad, alpha)
    return True


def _momentum_loop(loops: Any, var: Any, accum: Any, *, lr: Any, grad: Any, momentum: Any, use_nesterov: bool) -> bool:
    loops.momentum(var, accum, grad, lr, momentum, use_nesterov)
    return True


def _adam_loop(
    loops: Any, var: Any, m: Any, v: Any, *, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any,
    epsilon: Any, grad: Any, use_nesterov: bool,
) -> bool:  # fmt: skip
    if not use_nesterov:
        rate = _adam_rate(np, lr, beta1_power, beta2_power)
        loops.adam(var, m, v, grad, rate, 1 - beta1, 1 - beta2, epsilon)
    return not use_nesterov


def _rms_prop_loop(
    loops: Any, var: Any, ms: Any, mom: Any, *, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> bool:
    loops.rms_prop(var, ms, mom, grad, lr, 1 - rho, momentum, epsilon)
    return True


def _adagrad_loop(
    loops: Any, var: Any, accum: Any, *, lr: Any, grad: Any, update_slots: bool, epsilon: Any = None
) -> bool:
    fits = update_slots and epsilon is None
    if fits:
        loops.adagrad(var, accum, grad, lr)
    return fits


# Name of the optimiser, as in Apply<name>, SparseApply<name>, ResourceApply<name> and ResourceSparseApply<name>.
OPTIMISERS: Mapping[str, Optimiser] = {
    "AdaMax": Optimiser(_ada_max, ("m", "v"), _NATIVE),
    "Adadelta": Optimiser(_adadelta, ("accum", "accum_update"), _ALL, _ALL),
    "Adagrad": Optimiser(_adagrad, ("accum",), _ALL, _ALL, loop=_adagrad_loop),
    "AdagradDA": Optimiser(_adagrad_da, ("gradient_accumulator", "gradient_squared_accumulator"), _WIDE, _WIDE),
    "AdagradV2": Optimiser(_adagrad, ("accum",), _ALL, _ALL),
    "Adam": Optimiser(_adam, ("m", "v"), _ALL, loop=_adam_loop),
    "AdamWithAmsgrad": Optimiser(_adam_with_amsgrad, ("m", "v", "vhat"), _REAL, has_ref_ops=False),
    "AddSign": Optimiser(_add_sign, ("m",), _REAL),
    "CenteredRMSProp": Optimiser(_centered_rms_prop, ("mg", "ms", "mom"), _ALL, (*dtypes.COMPLEX, *_NATIVE)),
    "Ftrl": Optimiser(_ftrl, ("accum", "linear"), _REAL, _REAL, sparse_limits=_FTRL_LIMITS),
    "FtrlV2": Optimiser(_ftrl, ("accum", "linear"), _REAL, _REAL, sparse_limits=_FTRL_LIMITS),
    "GradientDescent": Optimiser(_gradient_descent, (), _ALL, loop=_gradient_descent_loop),
    "KerasMomentum": Optimiser(_keras_momentum, ("accum",), _ALL, _ALL, has_ref_ops=False),
    "Momentum": Optimiser(_momentum, ("accum",), _ALL, _ALL, loop=_momentum_loop),
    "PowerSign": Optimiser(_power_sign, ("m",), _REAL),
    "ProximalAdagrad": Optimiser(_proximal_adagrad, ("accum",), _WIDE, _WIDE, _PROXIMAL_LIMITS, _PROXIMAL_LIMITS),
    "ProximalGradientDescent": Optimiser(_proximal_gradient_descent, (), _WIDE, _WIDE),
    "RMSProp": Optimiser(_rms_prop, ("ms", "mom"), _ALL, (*dtypes.COMPLEX, *_NATIVE), loop=_rms_prop_loop),
}
