"""`tf.metrics` at k: compare the `k` classes with the highest scores of a row with the set of its labels.

Labels are class ids, int64: [..., labels], or [...] for one label per row; or a SparseTensor of such a shape.
Duplicates in a row count once.  Next to read: `more_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions import sets
from aexec.compat.v1.functions.conversions import convert_to_tensor_or_sparse_tensor
from aexec.compat.v1.functions.sparse_ops import sparse_concat, sparse_expand_dims, sparse_retain
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.metric_variables import collected_metric, metric_variable

__all__ = [
    "average_precision_at_k",
    "precision_at_k",
    "precision_at_top_k",
    "recall_at_k",
    "recall_at_top_k",
    "sparse_average_precision_at_k",
    "sparse_precision_at_k",
]


def _long(value: Any) -> Tensor:
    return ops.cast(convert_to_tensor(value), DstT=dtypes.int64)


def _top(predictions: Any, k: int) -> Tensor:
    """The classes with the `k` highest scores of each row: [..., k]."""
    return ops.top_kv2(convert_to_tensor(predictions), k)[1]


def _as_rows(labels: Any, predicted: Tensor) -> Any:
    """Reshape labels to the rank of the predictions.  Raises InvalidArgumentError if their rank does not fit."""
    labels = convert_to_tensor_or_sparse_tensor(labels)
    if isinstance(labels, SparseTensor):
        rank = labels.shape.rank
    else:
        labels = _long(labels)
        rank = labels.static_shape.rank
    wanted = predicted.static_shape.rank
    if rank is None or wanted is None:
        raise errors.InvalidValueError("the ranks of labels and predictions must be known")
    if rank not in (wanted, wanted - 1):
        raise errors.InvalidValueError(
            f"Unexpected rank {rank} of labels for predictions of rank {wanted}: it should be the same, or 1 less"
        )
    return labels if rank == wanted else _expanded(labels, -1)


def _expanded(labels: Any, axis: int) -> Any:
    if isinstance(labels, SparseTensor):
        return sparse_expand_dims(labels, axis)
    return ops.expand_dims(labels, axis)


def _only(ids: Any, class_id: int | None) -> Any:
    """Remove all classes but one from sets; return them unchanged if the class is None."""
    if class_id is None:
        return ids
    if isinstance(ids, SparseTensor):
        return sparse_retain(ids, ops.equal(ids.values, class_id))
    shape = ops.cast(ops.shape(ids), DstT=dtypes.int64)
    one = ops.fill(ops.concat_v2([shape[:-1], [1]], 0), convert_to_tensor(class_id, dtypes.int64))
    found = sets.intersection(one, ids)
    return SparseTensor(found.indices, found.values, shape)


def _counted(what: str, found: SparseTensor, weights: Any) -> tuple[Any, Tensor]:
    """Make a float64 variable; return it and the op that adds the weighted sizes of the sets to it."""
    with name_scope(what):
        sizes = ops.cast(sets.size(found), DstT=dtypes.float64)
        if weights is not None:
            given = ops.cast(convert_to_tensor(weights), DstT=dtypes.float64)
            sizes = sizes * ops.broadcast_to(given, ops.shape(sizes))
        kept = metric_variable("count", [], dtypes.float64)
        return kept, kept.assign_add(ops.sum(ops.reshape(sizes, [-1]), [0]))


def _at_top_k(rate: str, others: str, *, predicted_only: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    def at_top_k(
        labels: Any,
        predictions_idx: Any,
        k: int | None = None,
        class_id: int | None = None,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Tensor, Tensor]:
        with name_scope(name or _name(rate, k, class_id)):
            predicted = _long(predictions_idx)
            named = _only(_as_rows(labels, predicted), class_id)
            predicted = _only(predicted, class_id)
            right, more_right = _counted("true_positive", sets.intersection(predicted, named), weights)
            rest = sets.difference(predicted, named, aminusb=predicted_only)
            other, more_other = _counted(others, rest, weights)
            value = ops.identity(right) / (ops.identity(right) + ops.identity(other))
            update = more_right / (more_right + more_other)
            return collected_metric(value, update, metrics_collections, updates_collections)

    at_top_k.__name__ = at_top_k.__qualname__ = f"{rate}_at_top_k"
    at_top_k.__doc__ = f"`tf.metrics.{rate}_at_top_k`: of classes [..., k] that were predicted."
    return at_top_k


def _name(what: str, k: int | None, class_id: int | None) -> str:
    at = f"{what}_at_top_k" if k is None else f"{what}_at_{k}"
    return at if class_id is None else f"{at}_class{class_id}"


precision_at_top_k = _at_top_k("precision", "false_positive", predicted_only=True)
recall_at_top_k = _at_top_k("recall", "false_negative", predicted_only=False)


def precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`tf.metrics.precision_at_k`: the fraction of the top `k` classes that are among a row's labels.

    Args:
        labels: in a form that the module's docstring names.
        predictions: scores, [..., classes], floating.
        class_id: count only this class; None for all.
        weights: a weight per row, broadcast.

    Returns:
        The value and the update op, float64 scalars; NaN before the first prediction.
    """
    with name_scope(name or _name("precision", k, class_id)):
        found = _top(predictions, k)
        return precision_at_top_k(labels, found, k, class_id, weights, metrics_collections, updates_collections)


def recall_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`tf.metrics.recall_at_k`: the fraction of a row's labels that are among the top `k` classes.

    Arguments and results are those of `precision_at_k`.
    """
    with name_scope(name or _name("recall", k, class_id)):
        found = _top(predictions, k)
        return recall_at_top_k(labels, found, k, class_id, weights, metrics_collections, updates_collections)


sparse_precision_at_k = precision_at_k


def average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`tf.metrics.average_precision_at_k`: the mean over rows of the average precision of the top `k` classes.

    Arguments are those of `precision_at_k`.  Returns the value and the update op, float64 scalars; 0 before the first
    update.
    """
    if k < 1:
        raise errors.InvalidValueError(f"Invalid k={k}. `k` should be >= 1.")
    with name_scope(name or _name("average_precision", k, None)):
        scores = convert_to_tensor(predictions)
        found = _long(_top(scores, k))
        rows = _without_unknown(_as_rows(labels, found), ops.cast(ops.shape(scores)[-1], DstT=dtypes.int64))
        each = _average_precisions(rows, found, k)
        if weights is None:
            number = ops.cast(ops.size(each), DstT=dtypes.float64)
        else:
            given = ops.broadcast_to(ops.cast(convert_to_tensor(weights), DstT=dtypes.float64), ops.shape(each))
            each, number = each * given, ops.sum(ops.reshape(given, [-1]), [0])
        most, total = (metric_variable(name, [], dtypes.float64) for name in ("max", "total"))
        more_most, more = most.assign_add(number), total.assign_add(ops.sum(ops.reshape(each, [-1]), [0]))
        value, update = ops.div_no_nan(total, most), ops.div_no_nan(more, more_most)
        return collected_metric(value, update, metrics_collections, updates_collections)


sparse_average_precision_at_k = average_precision_at_k


def _without_unknown(labels: Any, classes: Tensor) -> Any:
    """Replace labels that are not class ids by -1."""

    def known(values: Tensor) -> Tensor:
        return ops.select_v2(ops.greater_equal(values, classes), convert_to_tensor(-1, dtypes.int64), values)

    if isinstance(labels, SparseTensor):
        return SparseTensor(labels.indices, known(labels.values), labels.dense_shape)
    return known(labels)


def _average_precisions(labels: Any, predicted: Tensor, k: int) -> Tensor:
    """The average precision of each row: precisions at the ranks of correct classes, over min(k, labels of the row)."""
    single = ops.expand_dims(predicted, -1)
    right = sets.size(sets.intersection(single, _for_each(labels, k)))
    right = ops.cast(ops.reshape(right, ops.shape(predicted)), DstT=dtypes.float64)
    place = ops.cumsum(ops.ones_like(right), -1)
    precision = ops.cumsum(right, -1) / place * right
    if isinstance(labels, SparseTensor):
        relevant = sets.size(labels)
    else:
        known = ops.cast(ops.greater_equal(labels, 0), DstT=dtypes.int32)
        relevant = ops.sum(known, [-1])
    return ops.sum(precision, [-1]) / ops.cast(ops.minimum(relevant, k), DstT=dtypes.float64)


def _for_each(labels: Any, k: int) -> Any:
    """Repeat the labels of each row `k` times: [..., labels] → [..., k, labels]."""
    wider = _expanded(labels, -2)
    if isinstance(labels, SparseTensor):
        return sparse_concat(-2, [wider] * k)
    return ops.tile(wider, [1] * (labels.static_shape.rank - 1) + [k, 1])
