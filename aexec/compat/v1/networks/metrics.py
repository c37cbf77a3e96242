"""`tf.metrics`: the namespace of metrics, which accumulate over runs.

Next to read: `aexec/metrics.py`.
"""

from __future__ import annotations

from aexec import metrics
from aexec.compat.v1.namespace import namespace

__all__: list[str] = []


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"aexec.metrics:{name}" for name in metrics.__all__},
        **{
            name: f"networks.more_metrics:{name}"
            for name in """false_negatives_at_thresholds false_positives_at_thresholds mean_cosine_distance
            mean_per_class_accuracy mean_tensor percentage_below precision_at_thresholds recall_at_thresholds
            sensitivity_at_specificity specificity_at_sensitivity true_negatives_at_thresholds
            true_positives_at_thresholds""".split()
        },
        **{
            name: f"networks.metrics_at_k:{name}"
            for name in """average_precision_at_k precision_at_k precision_at_top_k recall_at_k recall_at_top_k
            sparse_average_precision_at_k sparse_precision_at_k""".split()
        },
        "auc": """aexec.metrics:auc | labels predictions weights num_thresholds metrics_collections updates_collections
        curve name summation_method thresholds!""",
    },
)
