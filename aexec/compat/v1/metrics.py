"""`tf.metrics`: a table of measures over many runs.

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
        "auc": """aexec.metrics:auc | labels predictions weights num_thresholds metrics_collections updates_collections
        curve name summation_method!trapezoidal thresholds!""",
    },
    {"mean_cosine_distance": "use tf.metrics.mean of tf.losses.cosine_distance"},
)
