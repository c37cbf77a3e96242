"""Losses of predictions: cross entropies of logits, computed so that large ones do not overflow."""

from __future__ import annotations

from math import pi
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.shape_refiner import set_shape

__all__ = [
    "l2_loss",
    "log_poisson_loss",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "sparse_softmax_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]

l2_loss = ops.l2_loss


def sigmoid_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Tensor:
    """The cross entropy of each label, a probability, separately: `max(x, 0) - x * z + log(1 + exp(-|x|))`.

    Raises:
        InvalidArgumentError: labels and logits have different shapes.
    """
    with name_scope(name or "logistic_loss") as scope:
        x, z = _pair(logits, labels)
        zeros = ops.zeros_like(x)
        positive = ops.greater_equal(x, zeros)
        return ops.add_v2(
            ops.select_v2(positive, x, zeros) - x * z,
            ops.log1p(ops.exp(ops.select_v2(positive, -x, x))),
            name=scope,
        )


def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> Tensor:
    """Like `sigmoid_cross_entropy_with_logits`, with the positive part counted `pos_weight` times."""
    with name_scope(name or "logistic_loss") as scope:
        x, z = _pair(logits, labels)
        weight = 1.0 + (pos_weight - 1.0) * z
        soft = ops.log1p(ops.exp(-ops.abs(x))) + ops.relu(-x)
        return ops.add_v2((1.0 - z) * x, weight * soft, name=scope)


def log_poisson_loss(
    targets: Any, log_input: Any, *, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """The loss of counts from predicted logarithms of their means: `exp(log_input) - log_input * targets`.

    Args:
        compute_full_loss: add Stirling's approximation of `log(targets!)`, which has no gradient.

    Raises:
        InvalidArgumentError: targets and predictions have different shapes.
    """
    with name_scope(name or "log_poisson_loss"):
        x = convert_to_tensor(log_input, name="log_input")
        z = convert_to_tensor(targets, x.dtype.base, "targets")
        if not x.static_shape.is_compatible_with(z.static_shape):
            raise errors.InvalidValueError(
                f"log_input and targets must have the same shape, received ({x.static_shape} vs {z.static_shape})."
            )
        cost = ops.exp(x) - x * z
        if compute_full_loss:
            factorial = z * ops.log(z) - z + 0.5 * ops.log(2.0 * pi * z)
            small = ops.logical_and(ops.greater_equal(z, 0.0), ops.less_equal(z, 1.0))
            cost = cost + ops.select_v2(small, ops.zeros_like(z), factorial)
        return cost


def _pair(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    x = convert_to_tensor(logits, name="logits")
    z = convert_to_tensor(labels, x.dtype.base, "labels")
    if not x.static_shape.is_compatible_with(z.static_shape):
        raise errors.InvalidValueError(
            f"logits and labels must have the same shape, received ({x.static_shape} vs {z.static_shape})."
        )
    return x, z


def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """The cross entropy of labels, probabilities of exclusive classes along an axis; both inputs get gradients.

    Returns:
        The loss, in the shape of the logits without the axis.  Labels of another type are cast.  Labels may have other
            axes before the classes, if they have as many rows; their order is the same.
    """
    with name_scope(name or "softmax_cross_entropy_with_logits"):
        x, z = convert_to_tensor(logits, name="logits"), convert_to_tensor(labels, name="labels")
        if z.dtype.base is not x.dtype.base:
            z = ops.cast(z, DstT=x.dtype.base)
        rank = x.static_shape.rank
        last = (-1,) if rank is None else (-1, rank - 1)
        if rank == z.static_shape.rank == 2 and axis in last:
            return ops.softmax_cross_entropy_with_logits(x, z)[0]
        if axis not in last:
            x, z = _axis_last(x, axis), _axis_last(z, axis)
        outer = ops.shape(x)[:-1]
        flat_x, flat_z = [ops.reshape(value, ops.concat_v2([[-1], ops.shape(value)[-1:]], 0)) for value in (x, z)]
        costs = ops.reshape(ops.softmax_cross_entropy_with_logits(flat_x, flat_z)[0], outer)
        if rank is not None:
            set_shape(costs.node, costs.index, PartialTensorShape(list(x.static_shape)[:-1]))
        return costs


def _axis_last(value: Tensor, axis: int) -> Tensor:
    """The tensor with an axis moved to the end."""
    rank = value.static_shape.rank
    if rank is None:
        raise errors.InvalidValueError(f"the rank of '{value.name}' must be known to find axis {axis}")
    axis %= rank
    return ops.transpose(value, [i for i in range(rank) if i != axis] + [axis])


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Tensor:
    """The cross entropy of labels that are class numbers, with logits [*labels.shape, classes].

    Raises:
        InvalidArgumentError: the rank of the logits is not one higher than the labels'.
    """
    with name_scope(name or "SparseSoftmaxCrossEntropyWithLogits"):
        x, z = convert_to_tensor(logits, name="logits"), convert_to_tensor(labels, name="labels")
        ranks = x.static_shape.rank, z.static_shape.rank
        if ranks[0] is not None and ranks[1] is not None and ranks[0] != ranks[1] + 1:
            raise errors.InvalidValueError(
                "Rank mismatch: Rank of labels (received "
                f"{ranks[1]}) should equal rank of logits minus 1 (received {ranks[0]})."
            )
        if ranks[0] == 2:
            return ops.sparse_softmax_cross_entropy_with_logits(x, z)[0]
        flat = ops.reshape(x, ops.pack([-1, ops.shape(x)[-1]]))
        costs, _ = ops.sparse_softmax_cross_entropy_with_logits(flat, ops.reshape(z, [-1]))
        return ops.reshape(costs, ops.shape(z))
