"""The formulas of the optimisers: each changes a variable and its slots in place, given a gradient.

A formula is called with arrays of one shape that it may write into, whole variables or the
rows that a sparse gradient names, and with the op's other inputs and attrs by name.  All
arithmetic is in the variable's type, as TensorFlow's is.  Next to read: `training_ops.py`,
which finds the variables and calls these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass

__all__ = ["OPTIMISERS", "Formula", "Limits", "Optimiser"]

Formula = Callable[..., None]

_ALL = (*dtypes.COMPLEX, *dtypes.FLOAT)
_REAL = dtypes.FLOAT
_NATIVE = (dtypes.float16, dtypes.float32, dtypes.float64)
_WIDE = (dtypes.float32, dtypes.float64)

# What must hold of scalars: the words for it, and the test.
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
    """One optimiser.

    Attributes:
        formula: changes arrays in place.
        slots: names of the inputs, beside the variable, that are changed too.
        types, sparse_types: types that the dense and the sparse ops take; none if there is no such op.
        limits, sparse_limits: scalar → what the dense and the sparse ops ask of it.
        has_ref_ops: there are ops on ref variables, not only on resource variables.
    """

    formula: Formula
    slots: tuple[str, ...]
    types: Iterable[DType] = ()
    sparse_types: Iterable[DType] = ()
    limits: Limits = field(default_factory=dict)
    sparse_limits: Limits = field(default_factory=dict)
    has_ref_ops: bool = True


def _approach(average: Any, value: Any, rest: Any) -> None:
    """Move a moving average towards a value, by a share `rest` of the way."""
    average += (value - average) * rest


def _shrink(values: Any, threshold: Any) -> Any:
    """Towards zero by `threshold`, and zero where that is further than there is."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0)


def _gradient_descent(var: Any, *, alpha: Any, grad: Any) -> None:
    var -= grad * alpha


def _proximal_gradient_descent(var: Any, *, alpha: Any, l1: Any, l2: Any, grad: Any) -> None:
    var -= grad * alpha
    var[...] = _shrink(var, alpha * np.maximum(l1, 0)) / (1 + l2 * alpha)


def _momentum(var: Any, accum: Any, *, lr: Any, grad: Any, momentum: Any, use_nesterov: bool) -> None:
    accum *= momentum
    accum += grad
    var -= (grad + accum * momentum) * lr if use_nesterov else accum * lr


def _keras_momentum(var: Any, accum: Any, *, lr: Any, grad: Any, momentum: Any, use_nesterov: bool) -> None:
    step = grad * lr
    accum *= momentum
    accum -= step
    var += accum * momentum - step if use_nesterov else accum


def _adagrad(var: Any, accum: Any, *, lr: Any, grad: Any, update_slots: bool, epsilon: Any = None) -> None:
    if update_slots:
        accum += np.square(grad)
    root = np.sqrt(accum)
    var -= grad * lr / (root if epsilon is None else root + epsilon)


def _proximal_adagrad(var: Any, accum: Any, *, lr: Any, l1: Any, l2: Any, grad: Any) -> None:
    accum += np.square(grad)
    rate = lr / np.sqrt(accum)
    var -= grad * rate
    var[...] = _shrink(var, rate * l1) / (1 + l2 * rate)


def _adagrad_da(var: Any, total: Any, squares: Any, *, grad: Any, lr: Any, l1: Any, l2: Any, global_step: Any) -> None:
    total += grad
    squares += np.square(grad)
    steps = var.dtype.type(global_step)
    var[...] = -lr * _shrink(total, np.maximum(l1, 0) * steps) / (l2 * steps * lr + np.sqrt(squares))


def _adadelta(var: Any, accum: Any, accum_update: Any, *, lr: Any, rho: Any, epsilon: Any, grad: Any) -> None:
    accum *= rho
    accum += np.square(grad) * (1 - rho)
    update = np.sqrt(accum_update + epsilon) / np.sqrt(accum + epsilon) * grad
    var -= update * lr
    accum_update *= rho
    accum_update += np.square(update) * (1 - rho)


def _adam_rate(lr: Any, beta1_power: Any, beta2_power: Any) -> Any:
    return lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)


def _adam(
    var: Any, m: Any, v: Any, *, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any,
    grad: Any, use_nesterov: bool,
) -> None:  # fmt: skip
    rate = _adam_rate(lr, beta1_power, beta2_power)
    _approach(m, grad, 1 - beta1)
    _approach(v, np.square(grad), 1 - beta2)
    direction = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    var -= direction * rate / (np.sqrt(v) + epsilon)


def _adam_with_amsgrad(
    var: Any, m: Any, v: Any, vhat: Any, *, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any,
    epsilon: Any, grad: Any,
) -> None:  # fmt: skip
    rate = _adam_rate(lr, beta1_power, beta2_power)
    _approach(m, grad, 1 - beta1)
    _approach(v, np.square(grad), 1 - beta2)
    np.maximum(vhat, v, out=vhat)
    var -= m * rate / (np.sqrt(vhat) + epsilon)


def _ada_max(
    var: Any, m: Any, v: Any, *, beta1_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
) -> None:
    _approach(m, grad, 1 - beta1)
    np.maximum(beta2 * v, np.abs(grad), out=v)
    var -= lr / (1 - beta1_power) * (m / (v + epsilon))


def _rms_prop(var: Any, ms: Any, mom: Any, *, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> None:
    _approach(ms, np.square(grad), 1 - rho)
    mom *= momentum
    mom += grad * lr / np.sqrt(ms + epsilon)
    var -= mom


def _centered_rms_prop(
    var: Any, mg: Any, ms: Any, mom: Any, *, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> None:
    _approach(ms, np.square(grad), 1 - rho)
    _approach(mg, grad, 1 - rho)
    mom *= momentum
    mom += grad * lr / np.sqrt(ms - np.square(mg) + epsilon)
    var -= mom


def _add_sign(var: Any, m: Any, *, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any) -> None:
    _approach(m, grad, 1 - beta)
    var -= lr * (alpha + sign_decay * (np.sign(grad) * np.sign(m))) * grad


def _power_sign(var: Any, m: Any, *, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any) -> None:
    _approach(m, grad, 1 - beta)
    var -= lr * np.exp(logbase * sign_decay * (np.sign(grad) * np.sign(m))) * grad


def _ftrl(
    var: Any, accum: Any, linear: Any, *, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any,
    multiply_linear_by_lr: bool, l2_shrinkage: Any = None,
) -> None:  # fmt: skip
    # Either the linear term and the penalties are multiplied by the rate, or the rest is divided by it.
    times, divisor = (lr, 1) if multiply_linear_by_lr else (1, lr)
    new_accum = accum + np.square(grad)
    root, new_root = (np.sqrt(a) if lr_power == -0.5 else np.power(a, -lr_power) for a in (accum, new_accum))
    penalised = grad if l2_shrinkage is None else grad + 2 * l2_shrinkage * var
    linear += penalised * times - (new_root - root) / divisor * var
    clipped = np.maximum(np.minimum(linear, l1 * times), -l1 * times)
    var[...] = (clipped - linear) / (new_root / divisor + 2 * l2 * times)
    accum[...] = new_accum


# Name of the optimiser, as in Apply<name>, SparseApply<name>, ResourceApply<name> and ResourceSparseApply<name>.
OPTIMISERS: Mapping[str, Optimiser] = {
    "AdaMax": Optimiser(_ada_max, ("m", "v"), _NATIVE),
    "Adadelta": Optimiser(_adadelta, ("accum", "accum_update"), _ALL, _ALL),
    "Adagrad": Optimiser(_adagrad, ("accum",), _ALL, _ALL),
    "AdagradDA": Optimiser(_adagrad_da, ("gradient_accumulator", "gradient_squared_accumulator"), _WIDE, _WIDE),
    "AdagradV2": Optimiser(_adagrad, ("accum",), _ALL, _ALL),
    "Adam": Optimiser(_adam, ("m", "v"), _ALL),
    "AdamWithAmsgrad": Optimiser(_adam_with_amsgrad, ("m", "v", "vhat"), _REAL, has_ref_ops=False),
    "AddSign": Optimiser(_add_sign, ("m",), _REAL),
    "CenteredRMSProp": Optimiser(_centered_rms_prop, ("mg", "ms", "mom"), _ALL, (*dtypes.COMPLEX, *_NATIVE)),
    "Ftrl": Optimiser(_ftrl, ("accum", "linear"), _REAL, _REAL, sparse_limits=_FTRL_LIMITS),
    "FtrlV2": Optimiser(_ftrl, ("accum", "linear"), _REAL, _REAL, sparse_limits=_FTRL_LIMITS),
    "GradientDescent": Optimiser(_gradient_descent, (), _ALL),
    "KerasMomentum": Optimiser(_keras_momentum, ("accum",), _ALL, _ALL, has_ref_ops=False),
    "Momentum": Optimiser(_momentum, ("accum",), _ALL, _ALL),
    "PowerSign": Optimiser(_power_sign, ("m",), _REAL),
    "ProximalAdagrad": Optimiser(_proximal_adagrad, ("accum",), _WIDE, _WIDE, _PROXIMAL_LIMITS, _PROXIMAL_LIMITS),
    "ProximalGradientDescent": Optimiser(_proximal_gradient_descent, (), _WIDE, _WIDE),
    "RMSProp": Optimiser(_rms_prop, ("ms", "mom"), _ALL, (*dtypes.COMPLEX, *_NATIVE)),
}
