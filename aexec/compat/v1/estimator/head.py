"""`Head`: the part of a canned estimator that depends on the kind of labels: loss, predictions, metrics and outputs.

Next to read: `classifying.py` and `regressing.py`, the kinds of heads; then `canned.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aexec import ops, summary
from aexec.client.building import group
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.feature_column.numeric import NumericColumn, numeric_column
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.losses import Reduction, compute_weighted_loss

__all__ = ["Head"]


class Head:
    """The base of heads.

    Args:
        size: number of logits per example.
        weight_column: the weight of each example: a numeric column, or the name of the feature; None for weight 1.
        loss_reduction: how the losses of a batch are combined: one of `tf.losses.Reduction` except NONE.

    Raises:
        ValueError: `loss_reduction` is not one of these.
        TypeError: `weight_column` is neither a numeric column nor a name.
    """

    def __init__(self, size: int, weight_column: Any, loss_reduction: str) -> None:
        if loss_reduction not in Reduction.all() or loss_reduction == Reduction.NONE:
            raise errors.InvalidValueError(f"Invalid loss_reduction: {loss_reduction}")
        if isinstance(weight_column, str):
            weight_column = numeric_column(weight_column)
        if weight_column is not None and not isinstance(weight_column, NumericColumn):
            raise errors.InvalidTypeError(f"Weight column must be numeric column. Given type: {weight_column!r}.")
        self.size = size
        self._column = weight_column
        self._reduction = loss_reduction

    # A kind of head defines these.

    def predictions(self, logits: Tensor) -> dict[str, Any]:
        """Predictions by name, computed from logits [batch, size]."""
        raise NotImplementedError

    def outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Export outputs by name."""
        raise NotImplementedError

    def labels(self, labels: Any) -> Tensor:
        """Convert labels to the form that `losses` takes, [batch, …].  Raises ValueError if they do not fit."""
        raise NotImplementedError

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The unreduced losses, [batch, …]."""
        raise NotImplementedError

    def metrics(
        self, labels: Tensor, predictions: Mapping[str, Any], losses: Tensor, weights: Any
    ) -> dict[str, tuple[Any, Any]]:
        """Metrics by name: pairs of value and update op, as `tf.metrics` returns them."""
        raise NotImplementedError

    # All heads share these.

    def spec(
        self, features: Mapping[str, Any], mode: str, labels: Any, logits: Tensor, train: Callable[[Tensor], Any]
    ) -> EstimatorSpec:
        """Build the result of a model_fn for a mode.

        Args:
            logits: [batch, size].
            train: takes the loss, and returns the operation that minimises it.

        Raises:
            ValueError: the mode needs labels, and they are missing or do not fit.
        """
        predictions = self.predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions, export_outputs=self.outputs(predictions))
        wanted = self.labels(labels)
        losses = self.losses(wanted, logits)
        weights = None if self._column is None else FeatureValues(features).get(self._column)
        factors = 1.0 if weights is None else weights
        loss = compute_weighted_loss(losses, factors, loss_collection=None, reduction=self._reduction)
        if mode == ModeKeys.EVAL:
            metrics = self.metrics(wanted, predictions, losses, weights)
            return EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)
        summary.scalar("loss", loss)
        mean = compute_weighted_loss(losses, factors, loss_collection=None, reduction=Reduction.MEAN)
        summary.scalar("average_loss", mean)
        updates = require_graph().collections.get(GraphKeys.UPDATE_OPS)
        return EstimatorSpec(mode, predictions, loss, group(train(loss), *updates))

    def columns_of(self, labels: Any, size: int) -> Tensor:
        """Convert labels [batch] or [batch, size] to a tensor [batch, size].

        Raises:
            ValueError: labels are None or sparse, or have another shape.
        """
        if labels is None:
            raise errors.InvalidValueError(
                "You must provide a labels Tensor. Given: None. Suggested troubleshooting steps: Check that your data "
                "contain your label feature. Check that your input_fn properly parses and returns labels."
            )
        if isinstance(labels, SparseTensor):
            raise errors.InvalidValueError("SparseTensor labels are not supported: convert them to a dense Tensor.")
        found = convert_to_tensor(labels)
        if found.static_shape.rank == 1:
            found = ops.expand_dims(found, 1)
        wanted: Any = [None, size]
        if not found.static_shape.is_compatible_with(wanted):
            raise errors.InvalidValueError(
                f"Mismatched label shape. Expected labels dimension={size}.  Received {found.static_shape}. If your "
                "classifier expects one-hot encoding label, check your n_classes argument to the estimator and/or the "
                "shape of your label. Otherwise, check the shape of your label."
            )
        return found
