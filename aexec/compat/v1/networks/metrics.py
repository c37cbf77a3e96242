"""`tf.metrics`: a table of metrics over many runs.

Next to read: `aexec/metrics.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import metrics, ops
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import namespace, refuse
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework.dtypes import float32
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "precision_at_k",
]


def precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Any:
    """`tf.metrics.precision_at_k`: the fraction of the `k` top predicted classes that are among a row's labels."""
    refuse("precision_at_k", class_id=class_id, labels=labels if isinstance(labels, SparseTensor) else None)
    with name_scope(name or f"precision_at_{k}"):
        _, top = ops.top_kv2(predictions, k)
        named = ops.cast(convert_to_tensor(labels), DstT=top.dtype.base)
        if (named.static_shape.rank or 0) + 1 == top.static_shape.rank:
            named = ops.expand_dims(named, -1)
        hits = ops.any(ops.equal(ops.expand_dims(top, -1), ops.expand_dims(named, -2)), [-1])
        share = ops.mean(ops.cast(hits, DstT=float32), [-1])
        return metrics.mean(share, weights, metrics_collections, updates_collections)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"aexec.metrics:{name}" for name in metrics.__all__},
        **{
            name: f"networks.more_metrics:{name}"
            for name in """false_negatives_at_thresholds false_positives_at_thresholds mean_cosine_distance
            mean_per_class_accuracy mean_tensor percentage_below precision_at_thresholds recall_at_k
            recall_at_thresholds true_negatives_at_thresholds true_positives_at_thresholds""".split()
        },
        "auc": """aexec.metrics:auc | labels predictions weights num_thresholds metrics_collections updates_collections
        curve name summation_method!trapezoidal thresholds!""",
    },
    {
        "average_precision_at_k": "fetch the scores, and compute it with NumPy",
        "precision_at_top_k": "use tf.metrics.precision_at_k",
        "recall_at_top_k": "use tf.metrics.recall_at_k",
        "sensitivity_at_specificity": "use tf.metrics.recall_at_thresholds and tf.metrics.true_negatives_at_thresholds",
        "specificity_at_sensitivity": "use tf.metrics.recall_at_thresholds and tf.metrics.true_negatives_at_thresholds",
    },
)
