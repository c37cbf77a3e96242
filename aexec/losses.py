"""`aexec.losses`: losses of predictions as one number, weighted, with TensorFlow's names and values.

Each function computes a loss for every prediction, multiplies it by `weights`, and reduces them according to
`reduction`.  The result is added to the collection `losses`, whose sum `get_total_loss` returns.  A prediction with
weight zero does not count.
Next to read: `aexec/nn/cross_entropies.py`, whose functions return a number for each prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.graph.shape_refiner import set_shape

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


class Reduction:
    """How losses become one number: names, with TensorFlow's values.

    Attributes:
        NONE: they are not reduced.
        SUM: their sum.
        MEAN: the sum, divided by that of the weights.
        SUM_OVER_BATCH_SIZE: the sum, divided by their number.
        SUM_BY_NONZERO_WEIGHTS: the sum, divided by the number of nonzero weights.
    """

    NONE = "none"
    SUM = "weighted_sum"
    MEAN = "weighted_mean"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All reductions."""
        return (cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_BY_NONZERO_WEIGHTS)

    @classmethod
    def validate(cls, key: str) -> None:
        """Raise ValueError unless it is one of them."""
        if key not in cls.all():
            raise errors.InvalidValueError(f"Invalid Reduction Key {key}. Key should be one of {cls.all()}.")


# Collections


def add_loss(loss: Tensor, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Add a loss that was made elsewhere to a collection; None adds it to none."""
    if loss_collection is not None:
        require_graph().collections.get_ref(loss_collection).append(loss)


def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Tensor]:
    """The losses of a collection whose names begin with a match of `scope`, a regular expression; all if it is None."""
    return list(require_graph().collections.get(loss_collection, scope))


def get_regularization_losses(scope: str | None = None) -> list[Tensor]:
    """The losses that regularizers of variables returned."""
    return get_losses(scope, GraphKeys.REGULARIZATION_LOSSES)


def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Tensor:
    """The sum of the regularizers' losses, 0 if there are none."""
    found = get_regularization_losses(scope)
    return ops.add_n(found, name=name) if found else convert_to_tensor(0.0, name=name)


def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of all losses of the collection `losses`, and of the regularizers' losses.

    Raises:
        InvalidArgumentError: there is no loss.
    """
    found = get_losses(scope)
    if add_regularization_losses:
        found += get_regularization_losses(scope)
    if not found:
        raise errors.InvalidValueError("there is no loss in the collections of the graph")
    return ops.add_n(found, name=name)


# Weights and reductions


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Losses, each multiplied by its weight, as one number.

    Args:
        losses: of any shape; computed in float32, returned in their own type.
        weights: a scalar, or of the rank of the losses, each axis as long as theirs or 1.
        scope: name of the scope of the nodes.
        loss_collection: the collection to add the result to; None for none.
        reduction: one of `Reduction`'s.

    Raises:
        InvalidArgumentError: the weights have another shape, or the reduction is unknown.
    """
    if reduction not in Reduction.all():
        raise errors.InvalidValueError(
            f"Invalid Reduction Key: {reduction}; expected one of {', '.join(Reduction.all())}."
        )
    with name_scope(scope or "weighted_loss"):
        given = convert_to_tensor(losses, name="losses")
        x, w = _float(given, "losses"), _float(weights, "weights")
        _check_weights(w, x)
        loss = _reduced(x, x * w, w, reduction)
        if given.dtype.base is not loss.dtype:
            loss = ops.cast(loss, DstT=given.dtype.base)
        add_loss(loss, loss_collection)
        return loss


def _reduced(x: Tensor, weighted: Tensor, w: Tensor, reduction: str) -> Tensor:
    if reduction == Reduction.NONE:
        return weighted
    total = _sum(weighted)
    if reduction == Reduction.SUM:
        return total
    if reduction == Reduction.MEAN:
        return ops.div_no_nan(total, _sum(ops.ones_like(x) * w))
    if reduction == Reduction.SUM_OVER_BATCH_SIZE:
        return ops.div_no_nan(total, ops.cast(ops.size(x), DstT=dtypes.float32))
    return ops.div_no_nan(total, _sum(_present(x, w)))


def _present(x: Tensor, w: Tensor) -> Tensor:
    """One for each number whose weight is not zero, zero for others, in the shape of `x`."""
    counts = ops.select_v2(ops.equal(w, 0.0), ops.zeros_like(w), ops.ones_like(w))
    return ops.broadcast_to(counts, ops.shape(x))


def _sum(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The sum of all elements, or along some axes, which are kept."""
    if axes is not None:
        return ops.sum(x, list(axes), keep_dims=True)
    rank = x.static_shape.rank
    if rank is not None:
        return ops.sum(x, list(range(rank)))
    found = ops.sum(x, ops.range(0, ops.rank(x), 1))
    set_shape(found.node, found.index, PartialTensorShape([]))
    return found


def _float(value: Any, name: str) -> Tensor:
    tensor = convert_to_tensor(value, name=name)
    return tensor if tensor.dtype.base is dtypes.float32 else ops.cast(tensor, DstT=dtypes.float32)


def _check_weights(weights: Tensor, values: Tensor) -> None:
    w, v = weights.static_shape, values.static_shape
    if w.rank is None or v.rank is None or w.rank == 0:
        return
    sizes = zip(w, v, strict=False)
    if w.rank != v.rank or any(a not in (None, 1) and b is not None and a != b for a, b in sizes):
        raise errors.InvalidValueError(
            f"weights can not be broadcast to values: weights are {w}, values {v}; "
            "weights have to be a scalar, or as the values with some sizes 1"
        )


def _floats(labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Labels and predictions in float32.  Raises InvalidArgumentError if their shapes differ."""
    y, p = _float(labels, "labels"), _float(predictions, "predictions")
    if not y.static_shape.is_compatible_with(p.static_shape):
        raise errors.InvalidValueError(f"Shapes {p.static_shape} and {y.static_shape} are incompatible")
    return y, p


# Losses


def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """`|predictions - labels|`; arguments as of `compute_weighted_loss`."""
    with name_scope(scope or "absolute_difference") as name:
        y, p = _floats(labels, predictions)
        return compute_weighted_loss(ops.abs(p - y), weights, name, loss_collection, reduction)


def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """One minus the product of labels and predictions along an axis, along which they should have length 1.

    Args:
        weights: of the shape of labels, with size 1 along `axis`; others as of `compute_weighted_loss`.
    """
    with name_scope(scope or "cosine_distance_loss") as name:
        y, p = _floats(labels, predictions)
        return compute_weighted_loss(1.0 - _sum(p * y, [axis]), weights, name, loss_collection, reduction)


def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """`max(0, 1 - logits)` for label 1, `max(0, 1 + logits)` for label 0."""
    with name_scope(scope or "hinge_loss") as name:
        y, x = _floats(labels, logits)
        return compute_weighted_loss(ops.relu(1.0 - (2.0 * y - 1.0) * x), weights, name, loss_collection, reduction)


def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Half the square of an error up to `delta`, linear from there on."""
    with name_scope(scope or "huber_loss") as name:
        y, p = _floats(labels, predictions)
        error = ops.abs(p - y)
        near = ops.minimum(error, delta)
        losses = 0.5 * (near * near) + delta * (error - near)
        return compute_weighted_loss(losses, weights, name, loss_collection, reduction)


def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of probabilities, to which `epsilon` is added."""
    with name_scope(scope or "log_loss") as name:
        y, p = _floats(labels, predictions)
        losses = -(y * ops.log(p + epsilon)) - (1.0 - y) * ops.log(1.0 - p + epsilon)
        return compute_weighted_loss(losses, weights, name, loss_collection, reduction)


def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
) -> Tensor:
    """The squared differences between the predictions' pairwise differences within an example and its labels'.

    Args:
        labels, predictions: [batch, ...].
        weights: a scalar, or of the rank of the labels.

    Raises:
        InvalidArgumentError: the shapes differ, or their rank is unknown.
    """
    with name_scope(scope or "mean_pairwise_squared_error"):
        y, p = _floats(labels, predictions)
        w, differences = _float(weights, "weights"), p - y
        _check_weights(w, differences)
        rank = p.static_shape.rank if y.static_shape.rank is None else y.static_shape.rank  # they have one shape
        if rank is None:
            raise errors.InvalidValueError(f"the rank of labels or of predictions must be known: '{p.name}'")
        axes = range(1, rank)
        count = _sum(_present(differences, w), axes)
        squares = ops.div_no_nan(_sum(ops.square(differences), axes), ops.maximum(count - 1.0, 0.0))
        of_sum = ops.square(_sum(differences, axes))
        mixed = ops.div_no_nan(of_sum, ops.maximum(count * (count - 1.0), 0.0))
        total = _sum((2.0 * squares - 2.0 * mixed) * w)
        loss = ops.select_v2(ops.greater(_sum(count), 0.0), total, ops.zeros_like(total))
        add_loss(loss, loss_collection)
        return loss


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """`(predictions - labels)²`."""
    with name_scope(scope or "mean_squared_error") as name:
        y, p = _floats(labels, predictions)
        return compute_weighted_loss(ops.squared_difference(p, y), weights, name, loss_collection, reduction)


def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of labels that do not exclude each other, moved towards ½ by `label_smoothing`."""
    with name_scope(scope or "sigmoid_cross_entropy_loss") as name:
        x = convert_to_tensor(logits, name="logits")
        y = _as(multi_class_labels, x)
        if label_smoothing > 0:
            y = y * (1.0 - label_smoothing) + 0.5 * label_smoothing
        losses = nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x)
        return compute_weighted_loss(losses, weights, name, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of probabilities of exclusive classes, along the last axis; labels get no gradient.

    Args:
        label_smoothing: this fraction of a label is spread over all classes.
    """
    with name_scope(scope or "softmax_cross_entropy_loss") as name:
        x = convert_to_tensor(logits, name="logits")
        y = _as(onehot_labels, x)
        if label_smoothing > 0:
            classes = ops.cast(ops.shape(y)[-1], DstT=x.dtype.base)
            y = y * (1.0 - label_smoothing) + label_smoothing / classes
        losses = nn.softmax_cross_entropy_with_logits(labels=ops.stop_gradient(y), logits=x)
        return compute_weighted_loss(losses, weights, name, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of labels that are class numbers.

    Args:
        labels: integers of the shape of the logits without their last axis, or with size 1 there.
        weights: a scalar, or of the shape of the labels.
    """
    with name_scope(scope or "sparse_softmax_cross_entropy_loss") as name:
        x, y = convert_to_tensor(logits, name="logits"), convert_to_tensor(labels, name="labels")
        w = _float(weights, "weights")
        if y.static_shape.rank is not None and y.static_shape.rank == x.static_shape.rank:
            y = ops.squeeze(y, squeeze_dims=[-1])
        if (
            w.static_shape.rank is not None
            and y.static_shape.rank is not None
            and w.static_shape.rank == y.static_shape.rank + 1
        ):
            w = ops.squeeze(w, squeeze_dims=[-1])
        losses = nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x)
        return compute_weighted_loss(losses, w, name, loss_collection, reduction)


def _as(labels: Any, logits: Tensor) -> Tensor:
    """Labels in the type of the logits.  Raises InvalidArgumentError if their shapes differ."""
    y = convert_to_tensor(labels, name="labels")
    if y.dtype.base is not logits.dtype.base:
        y = ops.cast(y, DstT=logits.dtype.base)
    if not y.static_shape.is_compatible_with(logits.static_shape):
        raise errors.InvalidValueError(f"Shapes {logits.static_shape} and {y.static_shape} are incompatible")
    return y
