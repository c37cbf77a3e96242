"""The less common functions of `tf.metrics`.

Next to read: `metrics_at_k.py`, `aexec/metrics.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import metrics, ops
from aexec.client.building import name_scope
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.metric_variables import collected_metric, metric_variable

__all__ = [
    "false_negatives_at_thresholds",
    "false_positives_at_thresholds",
    "mean_cosine_distance",
    "mean_per_class_accuracy",
    "mean_tensor",
    "percentage_below",
    "precision_at_thresholds",
    "recall_at_thresholds",
    "sensitivity_at_specificity",
    "specificity_at_sensitivity",
    "true_negatives_at_thresholds",
    "true_positives_at_thresholds",
]


def _weights(values: Tensor, weights: Any) -> Tensor:
    if weights is None:
        return ops.ones_like(values)
    given = ops.cast(convert_to_tensor(weights), DstT=dtypes.float32)
    return ops.broadcast_to(given, ops.shape(values))


def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """`tf.metrics.mean_tensor`: the mean of each element."""
    with name_scope(name or "mean"):
        value = ops.cast(convert_to_tensor(values), DstT=dtypes.float32)
        shape = [size or 0 for size in value.static_shape]
        total, count = metric_variable("total_tensor", shape), metric_variable("count_tensor", shape)
        given = _weights(value, weights)
        mean = ops.div_no_nan(total, ops.maximum(count, 0.0))
        update = ops.div_no_nan(total.assign_add(value * given), ops.maximum(count.assign_add(given), 0.0))
        return collected_metric(mean, update, metrics_collections, updates_collections)


def percentage_below(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """`tf.metrics.percentage_below`: the fraction of values below a threshold."""
    below = ops.cast(ops.less(convert_to_tensor(values), threshold), DstT=dtypes.float32)
    return metrics.mean(below, weights, metrics_collections, updates_collections, name or "percentage_below_threshold")


def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """`tf.metrics.mean_cosine_distance`: 1 minus the mean dot product of unit vectors."""
    product = ops.sum(convert_to_tensor(predictions) * labels, [dim], keep_dims=True)
    if weights is not None:
        weights = ops.expand_dims(weights, -1)
    mean, update = metrics.mean(product, weights, None, None, name or "mean_cosine_distance")
    return collected_metric(1.0 - mean, 1.0 - update, metrics_collections, updates_collections)


def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """`tf.metrics.mean_per_class_accuracy`: the mean of the classes' accuracies; 0 for a class without labels."""
    with name_scope(name or "mean_accuracy"):
        wanted = ops.reshape(ops.cast(convert_to_tensor(labels), DstT=dtypes.int64), [-1])
        found = ops.reshape(ops.cast(convert_to_tensor(predictions), DstT=dtypes.int64), [-1])
        total, count = metric_variable("count", [num_classes]), metric_variable("total", [num_classes])
        right = ops.cast(ops.equal(wanted, found), DstT=dtypes.float32)
        given = _weights(right, None if weights is None else ops.reshape(weights, [-1]))
        of_class = ops.unsorted_segment_sum(right * given, wanted, num_classes)
        all_of_class = ops.unsorted_segment_sum(given, wanted, num_classes)
        mean = ops.mean(ops.div_no_nan(total, count), [0])
        update = ops.div_no_nan(total.assign_add(of_class), count.assign_add(all_of_class))
        return collected_metric(mean, update, metrics_collections, updates_collections)


# At thresholds


def _at_thresholds(labels: Any, predictions: Any, thresholds: Any, weights: Any) -> tuple[Any, Any]:
    """True and false positives and negatives by name, as variables and as update ops, each [thresholds]."""
    wanted = ops.reshape(ops.cast(convert_to_tensor(labels), DstT=dtypes.bool_), [1, -1])
    scores = ops.reshape(ops.cast(convert_to_tensor(predictions), DstT=dtypes.float32), [1, -1])
    bounds = np.asarray(thresholds, np.float32)
    if bounds.ndim != 1:
        raise errors.InvalidValueError(f"thresholds must be a list of numbers, not {thresholds!r}")
    positive = ops.greater(scores, bounds[:, None])
    shape = convert_to_tensor(predictions)
    given = ops.reshape(_weights(ops.cast(shape, DstT=dtypes.float32), weights), [1, -1])
    kinds = {
        "true_positives": ops.logical_and(positive, wanted),
        "false_negatives": ops.logical_and(ops.logical_not(positive), wanted),
        "true_negatives": ops.logical_and(ops.logical_not(positive), ops.logical_not(wanted)),
        "false_positives": ops.logical_and(positive, ops.logical_not(wanted)),
    }
    values, updates = {}, {}
    for name, which in kinds.items():
        kept = metric_variable(name, [len(bounds)])
        added = ops.sum(ops.cast(which, DstT=dtypes.float32) * given, [1])
        values[name], updates[name] = ops.identity(kept), ops.identity(kept.assign_add(added))
    return values, updates


def _counted(kind: str) -> Any:
    def count(
        labels: Any,
        predictions: Any,
        thresholds: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        with name_scope(name or kind):
            values, updates = _at_thresholds(labels, predictions, thresholds, weights)
            return collected_metric(values[kind], updates[kind], metrics_collections, updates_collections)

    count.__name__ = count.__qualname__ = f"{kind}_at_thresholds"
    count.__doc__ = f"`tf.metrics.{kind}_at_thresholds`: counts of scores above each threshold, or not."
    return count


false_negatives_at_thresholds = _counted("false_negatives")
false_positives_at_thresholds = _counted("false_positives")
true_negatives_at_thresholds = _counted("true_negatives")
true_positives_at_thresholds = _counted("true_positives")


def _rate(name: str, other: str) -> Any:
    def rate(
        labels: Any,
        predictions: Any,
        thresholds: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        with name_scope(name or f"{what}_at_thresholds"):
            values, updates = _at_thresholds(labels, predictions, thresholds, weights)
            found = [of["true_positives"] / (1e-7 + of["true_positives"] + of[other]) for of in (values, updates)]
            return collected_metric(found[0], found[1], metrics_collections, updates_collections)

    what = name
    rate.__name__ = rate.__qualname__ = f"{name}_at_thresholds"
    rate.__doc__ = f"`tf.metrics.{name}_at_thresholds`."
    return rate


precision_at_thresholds = _rate("precision", "false_positives")
recall_at_thresholds = _rate("recall", "false_negatives")


def _even_thresholds(name: str, rate: float, number: int, last: float) -> list[float]:
    """Thresholds from just below 0 to `last`.  Raises InvalidArgumentError if the rate is not in [0, 1]."""
    if not 0 <= rate <= 1:
        raise errors.InvalidValueError(f"`{name}` must be in the range [0, 1]. Currently, `{name}` is {rate}.")
    return [-1e-7, *((i + 1) / (number - 1) for i in range(number - 2)), last]


def _share(right: Tensor, wrong: Tensor) -> Tensor:
    """The fraction right / (right + wrong); 0 where both are 0."""
    return right / (right + wrong + 1e-7)


def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`tf.metrics.sensitivity_at_specificity`: the sensitivity at the lowest threshold whose specificity is nearest.

    Raises:
        InvalidArgumentError: `specificity` is not in [0, 1].
    """
    thresholds = _even_thresholds("specificity", specificity, num_thresholds, 1.0 + 1e-7)

    def of(counts: Any) -> Tensor:
        specificities = _share(counts["true_negatives"], counts["false_positives"])
        at = ops.arg_min(ops.abs(specificities - specificity), 0)
        return _share(*(ops.gather_v2(counts[kind], at, 0) for kind in ("true_positives", "false_negatives")))

    with name_scope(name or "sensitivity_at_specificity"):
        values, updates = _at_thresholds(labels, predictions, thresholds, weights)
        return collected_metric(of(values), of(updates), metrics_collections, updates_collections)


def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`tf.metrics.specificity_at_sensitivity`: the specificity at the highest threshold whose sensitivity is nearest.

    Raises:
        InvalidArgumentError: `sensitivity` is not in [0, 1].
    """
    # The last threshold is below 1, not above, as in TensorFlow: a score of 1 is positive at each.
    thresholds = _even_thresholds("sensitivity", sensitivity, num_thresholds, 1.0 - 1e-7)

    def of(counts: Any) -> Tensor:
        sensitivities = _share(counts["true_positives"], counts["false_negatives"])
        far = ops.abs(sensitivities - sensitivity)
        nearest = ops.cast(ops.equal(far, ops.min(far, [0])), DstT=dtypes.int64)
        at = ops.arg_max(ops.cumsum(nearest, 0), 0)
        return _share(*(ops.gather_v2(counts[kind], at, 0) for kind in ("true_negatives", "false_positives")))

    with name_scope(name or "specificity_at_sensitivity"):
        values, updates = _at_thresholds(labels, predictions, thresholds, weights)
        return collected_metric(of(values), of(updates), metrics_collections, updates_collections)
