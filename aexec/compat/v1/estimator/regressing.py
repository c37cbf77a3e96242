"""`RegressionHead`: the head of regressors, with squared errors as losses.

Next to read: `canned.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec import metrics, ops
from aexec.compat.v1.estimator.export import PredictOutput, RegressionOutput
from aexec.compat.v1.estimator.head import Head
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor

__all__ = ["RegressionHead"]


class RegressionHead(Head):
    """The head for labels [batch, label_dimension].  Raises ValueError if `label_dimension` is below 1."""

    def __init__(self, label_dimension: int, weight_column: Any, loss_reduction: str) -> None:
        if label_dimension < 1:
            raise errors.InvalidValueError(f"Invalid label_dimension {label_dimension}.")
        super().__init__(label_dimension, weight_column, loss_reduction)

    def predictions(self, logits: Tensor) -> dict[str, Any]:
        return {"predictions": logits}

    def outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        value = RegressionOutput(predictions["predictions"])
        return {"serving_default": value, "regression": value, "predict": PredictOutput(predictions)}

    def labels(self, labels: Any) -> Tensor:
        return ops.cast(self.columns_of(labels, self.size), DstT=dtypes.float32)

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        return ops.squared_difference(logits, labels)

    def metrics(
        self, labels: Tensor, predictions: Mapping[str, Any], losses: Tensor, weights: Any
    ) -> dict[str, tuple[Any, Any]]:
        return {
            "average_loss": metrics.mean(losses, weights, name="average_loss"),
            "prediction/mean": metrics.mean(predictions["predictions"], weights, name="prediction/mean"),
            "label/mean": metrics.mean(labels, weights, name="label/mean"),
        }
