"""`aexec.metrics`: metrics of a model over many runs, with TensorFlow's names and values.

Each function returns two tensors: the value of all that was counted so far, and an update, which counts this run's
inputs and returns the value after that.  The counts are local variables, in the collections `local_variables` and
`metric_variables`: `local_variables_initializer` resets them.  Fetch the value in a separate run: in a run with the
update, it may be that before or after.
Next to read: `losses.py`, whose values training minimises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, name_scope
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.metric_variables import Metric, collected_metric, metric_variable
from aexec.variables.variable import Variable

__all__ = [
    "accuracy",
    "auc",
    "false_negatives",
    "false_positives",
    "mean",
    "mean_absolute_error",
    "mean_iou",
    "mean_relative_error",
    "mean_squared_error",
    "precision",
    "recall",
    "root_mean_squared_error",
    "true_negatives",
    "true_positives",
]

# Added in `auc` to the outermost thresholds, and to counts that may be zero.
_THRESHOLD_EPSILON = 1e-7
_RATE_EPSILON = 1e-6


def _as(value: Any, dtype: DType, name: str) -> Tensor:
    tensor = convert_to_tensor(value, name=name)
    return tensor if tensor.dtype.base is dtype else ops.cast(tensor, DstT=dtype)


def _pair(labels: Any, predictions: Any, dtype: DType) -> tuple[Tensor, Tensor]:
    """Labels and predictions in a type.  Raises InvalidArgumentError if their shapes differ."""
    y, p = _as(labels, dtype, "labels"), _as(predictions, dtype, "predictions")
    if not y.static_shape.is_compatible_with(p.static_shape):
        raise errors.InvalidValueError(f"Shapes {p.static_shape} and {y.static_shape} are incompatible")
    return y, p


def _sum(x: Any) -> Tensor:
    return ops.sum(ops.reshape(x, [-1]), [0])


def _ratio(part: Any, whole: Any) -> Tensor:
    """`part / whole`, or 0 if the whole is 0, as before the first update."""
    return ops.div_no_nan(part, ops.maximum(whole, 0.0))


def _weighted(values: Tensor, weights: Any) -> tuple[Tensor, Tensor]:
    """Values times weights, and the weights in the shape of the values."""
    w = ops.broadcast_to(_as(weights, dtypes.float32, "weights"), ops.shape(values))
    return values * w, w


# Means


def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The weighted mean of all values.

    Args:
        values: numbers of any shape, counted in float32.
        weights: broadcast to the shape of the values; None for 1 each.
        metrics_collections, updates_collections: the collections to which the value, and the update, are added.
        name: of the scope of its nodes and variables.

    Returns:
        The value and the update, scalars of float32.
    """
    with name_scope(name or "mean"):
        x = _as(values, dtypes.float32, "values")
        total, count = metric_variable("total"), metric_variable("count")
        if weights is None:
            number = ops.cast(ops.size(x), DstT=dtypes.float32)
        else:
            x, w = _weighted(x, weights)
            number = _sum(w)
        more = total.assign_add(_sum(x))
        with control_dependencies([x]):
            counted = count.assign_add(number)
        return collected_metric(_ratio(total, count), _ratio(more, counted), metrics_collections, updates_collections)


def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The fraction of predictions that equal labels; arguments as of `mean`."""
    p = convert_to_tensor(predictions, name="predictions")
    y, p = _pair(labels, p, p.dtype.base)
    right = ops.cast(ops.equal(p, y), DstT=dtypes.float32)
    return mean(right, weights, metrics_collections, updates_collections, name or "accuracy")


def mean_absolute_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The mean of `|predictions - labels|`; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.float32)
    return mean(ops.abs(p - y), weights, metrics_collections, updates_collections, name or "mean_absolute_error")


def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The mean of `|predictions - labels| / normalizer`, counted as 0 if that is 0; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.float32)
    error = ops.div_no_nan(ops.abs(y - p), _as(normalizer, dtypes.float32, "normalizer"))
    return mean(error, weights, metrics_collections, updates_collections, name or "mean_relative_error")


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The mean of `(predictions - labels)²`; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.float32)
    error = ops.squared_difference(p, y)
    return mean(error, weights, metrics_collections, updates_collections, name or "mean_squared_error")


def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The root of the mean of `(predictions - labels)²`; arguments as of `mean`."""
    value, update = mean_squared_error(labels, predictions, weights, None, None, name or "root_mean_squared_error")
    return collected_metric(ops.sqrt(value), ops.sqrt(update), metrics_collections, updates_collections)


# For two classes


def _count(what: str, counts: Tensor, weights: Any) -> tuple[Variable, Tensor]:
    """A variable, and its sum after adding the weights of the elements of `counts` that are true."""
    with name_scope(what):
        numbers = ops.cast(counts, DstT=dtypes.float32)
        kept = metric_variable("count")
        return kept, kept.assign_add(_sum(numbers if weights is None else _weighted(numbers, weights)[0]))


def _counted(
    what: str, counts: Tensor, weights: Any, metrics: Iterable[str] | None, updates: Iterable[str] | None
) -> Metric:
    kept, update = _count(what, counts, weights)
    return collected_metric(ops.identity(kept), ops.identity(update), metrics, updates)


def true_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The count of true predictions with true labels, both as bools; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.bool_)
    return _counted(name or "true_positives", ops.logical_and(y, p), weights, metrics_collections, updates_collections)


def true_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The count of false predictions with false labels; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.bool_)
    neither = ops.logical_not(ops.logical_or(y, p))
    return _counted(name or "true_negatives", neither, weights, metrics_collections, updates_collections)


def false_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The count of true predictions with false labels; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.bool_)
    wrong = ops.logical_and(ops.logical_not(y), p)
    return _counted(name or "false_positives", wrong, weights, metrics_collections, updates_collections)


def false_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The count of false predictions with true labels; arguments as of `mean`."""
    y, p = _pair(labels, predictions, dtypes.bool_)
    missed = ops.logical_and(y, ops.logical_not(p))
    return _counted(name or "false_negatives", missed, weights, metrics_collections, updates_collections)


def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The fraction of true predictions that are right, 0 if none is true; arguments as of `mean`."""
    with name_scope(name or "precision"):
        y, p = _pair(labels, predictions, dtypes.bool_)
        right, more_right = _count("true_positives", ops.logical_and(y, p), weights)
        wrong, more_wrong = _count("false_positives", ops.logical_and(ops.logical_not(y), p), weights)
        value, update = _ratio(right, right + wrong), _ratio(more_right, more_right + more_wrong)
        return collected_metric(value, update, metrics_collections, updates_collections)


def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The fraction of true labels that were predicted, 0 if none is true; arguments as of `mean`."""
    with name_scope(name or "recall"):
        y, p = _pair(labels, predictions, dtypes.bool_)
        found, more_found = _count("true_positives", ops.logical_and(y, p), weights)
        missed, more_missed = _count("false_negatives", ops.logical_and(y, ops.logical_not(p)), weights)
        value, update = _ratio(found, found + missed), _ratio(more_found, more_found + more_missed)
        return collected_metric(value, update, metrics_collections, updates_collections)


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
) -> Metric:
    """The area below a curve, summed between thresholds.

    Args:
        predictions: between 0 and 1.
        num_thresholds: the number of evenly spaced thresholds at which true and false positives are counted.
        curve: `"ROC"`, true over false positives, or `"PR"`, precision over recall.
        summation_method: `"trapezoidal"`; or `"careful_interpolation"`, with curves instead of lines between the points
            of precision over recall.
        weights, others: as of `mean`.

    Raises:
        InvalidArgumentError: an unknown curve or method, fewer than two thresholds, or shapes that differ.
    """
    if curve not in ("ROC", "PR"):
        raise errors.InvalidValueError(f"curve must be either ROC or PR, {curve} unknown")
    if summation_method not in ("trapezoidal", "careful_interpolation"):
        raise errors.InvalidValueError(f"Invalid summation_method: {summation_method}")
    if num_thresholds < 2:
        raise errors.InvalidValueError(f"auc needs two thresholds at least, got {num_thresholds}")
    inner = [(i + 1) / (num_thresholds - 1) for i in range(num_thresholds - 2)]
    thresholds = [-_THRESHOLD_EPSILON, *inner, 1.0 + _THRESHOLD_EPSILON]
    with name_scope(name or "auc"):
        y, p = _as(labels, dtypes.bool_, "labels"), _as(predictions, dtypes.float32, "predictions")
        if not y.static_shape.is_compatible_with(p.static_shape):
            raise errors.InvalidValueError(f"Shapes {p.static_shape} and {y.static_shape} are incompatible")
        w = ops.ones_like(p) if weights is None else _weighted(p, weights)[1]
        # [thresholds, predictions]
        above = ops.greater(ops.reshape(p, [1, -1]), convert_to_tensor([[t] for t in thresholds], dtypes.float32))
        positive = ops.reshape(y, [1, -1])
        each = ops.reshape(w, [1, -1])
        kept, updates = [], []
        for what, counts in (
            ("true_positives", ops.logical_and(positive, above)),
            ("false_negatives", ops.logical_and(positive, ops.logical_not(above))),
            ("true_negatives", ops.logical_not(ops.logical_or(positive, above))),
            ("false_positives", ops.logical_and(ops.logical_not(positive), above)),
        ):
            variable = metric_variable(what, [num_thresholds])
            kept.append(variable)
            updates.append(variable.assign_add(ops.sum(ops.cast(counts, DstT=dtypes.float32) * each, [1])))
        area = _interpolated_area if (curve, summation_method) == ("PR", "careful_interpolation") else _area
        value, update = area(kept, curve), area(updates, curve)
        return collected_metric(value, update, metrics_collections, updates_collections)


def _area(counts: Sequence[Any], curve: str) -> Tensor:
    """The area below a curve from the true positives, false negatives, true negatives and false positives at
    thresholds.
    """
    tp, fn, tn, fp = (convert_to_tensor(count) for count in counts)
    found = (tp + _RATE_EPSILON) / (tp + fn + _RATE_EPSILON)
    if curve == "ROC":
        x, y = fp / (fp + tn + _RATE_EPSILON), found
    else:
        x, y = found, (tp + _RATE_EPSILON) / (tp + fp + _RATE_EPSILON)
    return _sum((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2.0)


def _interpolated_area(counts: Sequence[Any], curve: str) -> Tensor:
    """The area below precision over recall, counts as of `_area`.

    Between two thresholds the true positives grow linearly with the number of those above, so that precision over
    recall is a hyperbola (Davis and Goadrich, 2006).
    """
    tp, fn, _, fp = (convert_to_tensor(count) for count in counts)
    above = tp + fp
    more_true, more = tp[:-1] - tp[1:], above[:-1] - above[1:]
    slope = _ratio(more_true, more)
    intercept = tp[1:] - slope * above[1:]
    is_between = ops.logical_and(above[:-1] > 0.0, above[1:] > 0.0)
    growth = ops.select_v2(is_between, _ratio(above[:-1], above[1:]), ops.ones_like(slope))
    return _sum(_ratio(slope * (more_true + intercept * ops.log(growth)), tp[1:] + fn[1:]))


# For several classes


def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Iterable[str] | None = None,
    updates_collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Metric:
    """The mean over classes of the intersection of labels and predictions, divided by their union.

    Args:
        labels, predictions: numbers of classes, from 0 to `num_classes - 1`, of any shape.
        weights, others: as of `mean`.

    Returns:
        The value, and the confusion matrix [num_classes, num_classes] after the update, as in TensorFlow.
    """
    with name_scope(name or "mean_iou"):
        y, p = _pair(labels, predictions, dtypes.int64)
        matrix = metric_variable("total_confusion_matrix", [num_classes, num_classes], dtypes.float64)
        where = ops.pack([ops.reshape(y, [-1]), ops.reshape(p, [-1])], axis=1)
        w = ops.ones_like(y) if weights is None else ops.broadcast_to(weights, ops.shape(y))
        counts = ops.cast(ops.reshape(w, [-1]), DstT=dtypes.float64)
        size = convert_to_tensor([num_classes, num_classes], dtypes.int64)
        update = matrix.assign_add(ops.scatter_nd(where, counts, size))
        return collected_metric(_iou(convert_to_tensor(matrix)), update, metrics_collections, updates_collections)


def _iou(matrix: Tensor) -> Tensor:
    counts = ops.cast(matrix, DstT=dtypes.float32)
    common = ops.diag_part(counts)
    either = ops.sum(counts, [0]) + ops.sum(counts, [1]) - common
    classes = _sum(ops.cast(ops.not_equal(either, 0.0), DstT=dtypes.float32))
    return ops.div_no_nan(_sum(ops.div_no_nan(common, either)), classes)
