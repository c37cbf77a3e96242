"""`tf.contrib.metrics`: `tf.metrics` with the predictions first, under names that begin with `streaming_`.

Next to read: `slim.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec.compat.v1.namespace import namespace
from aexec.framework import errors

__all__ = ["accuracy", "aggregate_metric_map", "aggregate_metrics"]

_REST = "weights metrics_collections updates_collections name"
_MORE = "networks.more_metrics"
_BOUNDS = f"thresholds {_REST}"
_PAIRS = """accuracy false_negatives false_positives mean_absolute_error mean_squared_error precision recall
root_mean_squared_error true_negatives true_positives""".split()


def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """Split pairs (value, update op) into a list of values and a list of updates.  Raises ValueError for no pair."""
    if not value_update_tuples:
        raise errors.InvalidValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(names_to_tuples: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split name → (value, update op) into name → value and name → update op."""
    pairs = names_to_tuples.items()
    return {name: value for name, (value, _) in pairs}, {name: update for name, (_, update) in pairs}


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """The fraction of predictions that equal their labels, in one run; keeps no state."""
    from aexec import ops
    from aexec.client.building import name_scope
    from aexec.framework.dtypes import float32

    with name_scope(name or "accuracy"):
        equal = ops.cast(ops.equal(predictions, labels), DstT=float32)
        if weights is None:
            return ops.mean(equal, ops.range(0, ops.rank(equal), 1))
        weighted = equal * weights
        axes = ops.range(0, ops.rank(weighted), 1)
        return ops.sum(weighted, axes) / ops.sum(ops.broadcast_to(weights, ops.shape(weighted)), axes)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{f"streaming_{name}": f"networks.metrics:{name} | predictions labels {_REST}" for name in _PAIRS},
        "streaming_auc": """networks.metrics:auc | predictions labels weights num_thresholds metrics_collections
        updates_collections curve name""",
        "streaming_mean": f"networks.metrics:mean | values {_REST}",
        "streaming_mean_iou": f"""networks.metrics:mean_iou | predictions labels num_classes {_REST}""",
        "streaming_mean_relative_error": f"""networks.metrics:mean_relative_error | predictions labels
        normalizer {_REST}""",
        "streaming_mean_tensor": f"networks.more_metrics:mean_tensor | values {_REST}",
        "streaming_percentage_less": f"networks.more_metrics:percentage_below | values threshold {_REST}",
        **{
            f"streaming_{name}_at_thresholds": f"{_MORE}:{name}_at_thresholds | predictions labels {_BOUNDS}"
            for name in "precision recall".split()
        },
    },
    {"streaming_concat": "fetch the values, and concatenate them with NumPy"},
)
