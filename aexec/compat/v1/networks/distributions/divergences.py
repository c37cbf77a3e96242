"""Kullback-Leibler divergences: a registry of functions by the classes of two distributions.

Next to read: `normal.py`, which registers the divergence of two normal distributions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, name_scope
from aexec.compat.v1.functions.control_flow_ops import Assert
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor

__all__ = ["RegisterKL", "cross_entropy", "kl_divergence"]

# (class of a, class of b) → function of both and a name.
_DIVERGENCES: dict[tuple[type, type], Callable[..., Tensor]] = {}


class RegisterKL:
    """`tf.distributions.RegisterKL`: decorator that registers the divergence of two classes of distributions.

    The decorated function takes two distributions and `name`, and returns a tensor of their batch shape.

    Raises:
        TypeError: the decorated object is not callable.
        ValueError: the two classes have a function already.
    """

    def __init__(self, dist_cls_a: type, dist_cls_b: type) -> None:
        self._key = dist_cls_a, dist_cls_b

    def __call__(self, kl_fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        if not callable(kl_fn):
            raise errors.InvalidTypeError(f"kl_fn must be callable, received: {kl_fn}")
        if self._key in _DIVERGENCES:
            a, b = (kind.__name__ for kind in self._key)
            raise errors.InvalidValueError(f"KL({a} || {b}) has already been registered to: {_DIVERGENCES[self._key]}")
        _DIVERGENCES[self._key] = kl_fn
        return kl_fn


def _registered(a: type, b: type) -> Callable[..., Tensor] | None:
    """Find the function registered for the nearest bases; None if there is none.

    Nearest: the fewest steps up both class hierarchies together; among equals, the fewest steps up from `a`.
    """
    found = [
        (steps_of_a + steps_of_b, steps_of_a, _DIVERGENCES[base_of_a, base_of_b])
        for steps_of_a, base_of_a in enumerate(a.__mro__)
        for steps_of_b, base_of_b in enumerate(b.__mro__)
        if (base_of_a, base_of_b) in _DIVERGENCES
    ]
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def kl_divergence(
    distribution_a: Any, distribution_b: Any, allow_nan_stats: bool = True, name: str | None = None
) -> Tensor:
    """`tf.distributions.kl_divergence`: the divergence of `distribution_a` from `distribution_b`, in nats.

    Args:
        allow_nan_stats: False: a run fails with InvalidArgumentError if the result has a NaN.

    Returns:
        A tensor of the broadcast batch shape of both.

    Raises:
        NotImplementedError: no function is registered for their classes.
    """
    function = _registered(type(distribution_a), type(distribution_b))
    if function is None:
        raise NotImplementedError(
            "No KL(distribution_a || distribution_b) registered for distribution_a type "
            f"{type(distribution_a).__name__} and distribution_b type {type(distribution_b).__name__}"
        )
    with name_scope("KullbackLeibler"):
        found = function(distribution_a, distribution_b, name=name)
        if allow_nan_stats:
            return found
        said = (
            f"KL calculation between {distribution_a.name} and {distribution_b.name} returned NaN values "
            "(and was called with allow_nan_stats=False). Values:"
        )
        numbers = ops.logical_not(ops.any(ops.is_nan(found), ops.range(0, ops.rank(found), 1)))
        with control_dependencies([Assert(numbers, [said, found])]):
            return ops.identity(found, name="checked_kl")


def cross_entropy(ref: Any, other: Any, allow_nan_stats: bool = True, name: str | None = None) -> Tensor:
    """The expectation of -log(probability in `other`) over samples of `ref`, in nats.  Raises as `kl_divergence`."""
    with name_scope(name or "cross_entropy"):
        entropy: Tensor = ref.entropy()
        return entropy + kl_divergence(ref, other, allow_nan_stats=allow_nan_stats)
