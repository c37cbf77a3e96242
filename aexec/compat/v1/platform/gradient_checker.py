"""`tf.test.compute_gradient`: compares a graph's gradients with finite differences.

Next to read: `test.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.autodiff import gradients
from aexec.client.building import placeholder
from aexec.compat.v1.values.default_session import default_session
from aexec.framework import errors

__all__ = ["compute_gradient", "compute_gradient_error"]


def _jacobians(
    x: Any, x_shape: Sequence[int], y: Any, y_shape: Sequence[int], first: Any, delta: float, feeds: Any
) -> tuple[Any, Any]:
    """The Jacobian by gradients and the one by finite differences, both [elements of x, elements of y]."""
    session = default_session()
    fed = placeholder(y.dtype.base, list(y_shape))
    (grad,) = gradients.gradients([y], [x], [fed])
    kind = x.dtype.base.as_numpy_dtype
    x_size, y_size = (int(np.prod(shape, dtype=np.int64)) for shape in (x_shape, y_shape))
    at = np.random.random_sample(x_shape).astype(kind) if first is None else np.asarray(first, kind)
    if list(at.shape) != list(x_shape):
        raise errors.InvalidValueError(f"x_init_value has shape {list(at.shape)}, not {list(x_shape)}")
    theory, numeric = np.zeros((x_size, y_size), kind), np.zeros((x_size, y_size), kind)
    if grad is not None:
        for column in range(y_size):
            one = np.zeros(y_size, y.dtype.base.as_numpy_dtype)
            one[column] = 1
            theory[:, column] = _dense(session.run(grad, {**feeds, x: at, fed: one.reshape(y_shape)}), x_shape).ravel()
    for row in range(x_size):
        step = np.zeros(x_size, kind)
        step[row] = delta
        above, below = (session.run(y, {**feeds, x: at + way * step.reshape(x_shape)}) for way in (1, -1))
        numeric[row] = (above - below).ravel() / (2 * delta)
    return theory, numeric


def _dense(value: Any, shape: Sequence[int]) -> Any:
    """Convert `IndexedSlices` to a dense gradient."""
    if not hasattr(value, "indices"):
        return value
    found = np.zeros(shape, value.values.dtype)
    np.add.at(found, value.indices, value.values)
    return found


def compute_gradient(
    x: Any,
    x_shape: Any,
    y: Any,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Any = None,
) -> Any:
    """`tf.test.compute_gradient`, in the default session.

    Args:
        x: a tensor, or a list of tensors; for a list, the result is a list of results.
        x_init_value: the point at which to differentiate; by default random numbers in [0, 1).
        delta: step of the central differences.
        init_targets: operations to run first.

    Returns:
        The Jacobian of y with respect to x by gradients, and the one by differences, both [elements of x, elements of
        y].
    """
    for target in (
        [init_targets] if init_targets is not None and not isinstance(init_targets, list) else init_targets or ()
    ):
        default_session().run(target)
    rest = (y, list(y_shape))
    if not isinstance(x, list):
        return _jacobians(x, list(x_shape), *rest, x_init_value, delta, extra_feed_dict or {})
    firsts = [None] * len(x) if x_init_value is None else x_init_value
    return [
        _jacobians(one, list(shape), *rest, first, delta, extra_feed_dict or {})
        for one, shape, first in zip(x, x_shape, firsts, strict=True)
    ]


def compute_gradient_error(
    x: Any,
    x_shape: Any,
    y: Any,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Any = None,
) -> float:
    """`tf.test.compute_gradient_error`: the greatest absolute difference of the two results of `compute_gradient`."""
    found = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict)
    pairs = found if isinstance(x, list) else [found]
    return max((float(np.abs(one - other).max()) for one, other in pairs if one.size), default=0.0)
