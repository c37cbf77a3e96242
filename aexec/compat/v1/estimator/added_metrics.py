"""`tf.estimator.add_metrics`: adds metrics to an estimator.

Next to read: `estimator.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from aexec.compat.v1.estimator.estimator import Estimator
from aexec.compat.v1.estimator.model import called
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys
from aexec.compat.v1.estimator.run_config import RunConfig
from aexec.framework import errors

__all__ = ["add_metrics"]

_ARGUMENTS = {"features", "labels", "predictions", "config"}


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]) -> Estimator:
    """`tf.estimator.add_metrics`: return a new estimator with the same folder, whose evaluations compute more metrics.

    Args:
        metric_fn: a function with any of the parameters `features`, `labels`, `predictions` and `config`, which
            returns name → (value, update op).  Its metrics replace the estimator's metrics of the same name.

    Raises:
        ValueError: `metric_fn` has another parameter.
    """
    if others := set(inspect.signature(metric_fn).parameters) - _ARGUMENTS:
        raise errors.InvalidValueError(f"metric_fn ({metric_fn}) has following not expected args: {sorted(others)}")

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        values = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        more = called(metric_fn, **values)
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **more})

    return Estimator(model_fn, estimator.model_dir, estimator.config)
