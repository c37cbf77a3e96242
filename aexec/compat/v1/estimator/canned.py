"""Canned estimators: classifiers and regressors over feature columns, with a linear model, a deep network, or both.

Each is an `Estimator` whose model_fn combines a `Head` with one or two `Part`s.  Variables have the names that
TensorFlow gives them, so its checkpoints can be restored.
Next to read: `networks.py` and `head.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aexec import nn
from aexec.client.building import control_dependencies, group
from aexec.compat.v1.estimator.classifying import classifying_head
from aexec.compat.v1.estimator.estimator import Estimator
from aexec.compat.v1.estimator.head import Head
from aexec.compat.v1.estimator.model_spec import EstimatorSpec
from aexec.compat.v1.estimator.networks import Deep, Part, Wide
from aexec.compat.v1.estimator.regressing import RegressionHead
from aexec.compat.v1.estimator.run_config import RunConfig
from aexec.compat.v1.values.framework_ops import get_global_step
from aexec.framework import errors
from aexec.graph.nodes.node import Node, Tensor
from aexec.losses import Reduction

__all__ = [
    "DNNClassifier",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearRegressor",
]

# Learning rates for an optimizer given by name; the wide ones are upper bounds (see `Wide.rate`).
_DEEP_RATE, _WIDE_RATE = 0.05, 0.2
_COMBINED_DEEP_RATE, _COMBINED_WIDE_RATE = 0.001, 0.005

_Folder = str | os.PathLike[str] | None


def _model_fn(head: Head, parts: Sequence[Part]) -> Callable[..., EstimatorSpec]:
    """Make the model_fn that sums the logits of the parts and passes them to the head."""

    def train(loss: Tensor) -> Node:
        step = get_global_step()
        assert step is not None
        if len(parts) == 1:
            return parts[0].train(loss, step)
        with control_dependencies([group(*[part.train(loss) for part in parts])]):
            return group(step.assign_add(1))

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
        if not isinstance(features, Mapping):
            raise errors.InvalidValueError(
                f"features should be a dictionary of `Tensor`s. Given type: {type(features).__name__}"
            )
        logits = parts[0].logits(features, head.size, mode)
        for part in parts[1:]:
            logits = logits + part.logits(features, head.size, mode)
        return head.spec(features, mode, labels, logits, train)

    return model_fn


class DNNClassifier(Estimator):
    """`tf.estimator.DNNClassifier`: classifies with a deep network.

    Args:
        hidden_units: number of units of each hidden layer.
        feature_columns: dense columns.
        model_dir, config, warm_start_from: as in `Estimator`.
        n_classes: number of classes.  The model has one logit for two classes, else a logit per class.
        weight_column: the weight of each example: a numeric column, or the name of the feature.
        label_vocabulary: names of the classes in the order of their ids, if labels are strings.
        optimizer: an optimizer, a function that returns one, or "Adagrad", "Adam", "Ftrl", "RMSProp" or "SGD".
        activation_fn: activation of the hidden layers; None for none.
        dropout: probability in training that a hidden unit is dropped; None for no dropout.
        input_layer_partitioner: partitioner of the columns' variables.
        loss_reduction: how the losses of a batch are combined, one of `tf.losses.Reduction`.
        batch_norm: True to normalise the output of each hidden layer.

    Raises:
        ValueError: `n_classes` is below 2, `label_vocabulary` does not have `n_classes` names, or `loss_reduction` is
            not a reduction to a scalar.
        TypeError: `weight_column` is neither a numeric column nor a name.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: _Folder = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Callable[[Any], Any] | None = nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        head = classifying_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        part = Deep(
            hidden_units,
            list(feature_columns),
            optimizer,
            _DEEP_RATE,
            activation_fn,
            dropout,
            input_layer_partitioner,
            batch_norm,
        )
        super().__init__(_model_fn(head, [part]), model_dir, config, warm_start_from=warm_start_from)


class DNNRegressor(Estimator):
    """`tf.estimator.DNNRegressor`: predicts numbers with a deep network.

    Args:
        label_dimension: number of values per label.

    Other arguments, and errors, are those of `DNNClassifier`.

    Raises:
        ValueError: `label_dimension` is below 1.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: _Folder = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Callable[[Any], Any] | None = nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        part = Deep(
            hidden_units,
            list(feature_columns),
            optimizer,
            _DEEP_RATE,
            activation_fn,
            dropout,
            input_layer_partitioner,
            batch_norm,
        )
        super().__init__(_model_fn(head, [part]), model_dir, config, warm_start_from=warm_start_from)


class LinearClassifier(Estimator):
    """`tf.estimator.LinearClassifier`: classifies with a linear model.

    Args:
        feature_columns: dense or categorical columns.
        partitioner: partitioner of the variables.
        sparse_combiner: how the weights of an example's ids are combined: "sum", "mean" or "sqrtn".

    Other arguments, and errors, are those of `DNNClassifier`.
    """

    def __init__(
        self,
        feature_columns: Sequence[Any],
        model_dir: _Folder = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = classifying_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        part = Wide(list(feature_columns), optimizer, _WIDE_RATE, sparse_combiner, partitioner)
        super().__init__(_model_fn(head, [part]), model_dir, config, warm_start_from=warm_start_from)


class LinearRegressor(Estimator):
    """`tf.estimator.LinearRegressor`: predicts numbers with a linear model.

    Args:
        label_dimension: number of values per label.

    Other arguments, and errors, are those of `LinearClassifier`.

    Raises:
        ValueError: `label_dimension` is below 1.
    """

    def __init__(
        self,
        feature_columns: Sequence[Any],
        model_dir: _Folder = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        part = Wide(list(feature_columns), optimizer, _WIDE_RATE, sparse_combiner, partitioner)
        super().__init__(_model_fn(head, [part]), model_dir, config, warm_start_from=warm_start_from)


def _combined(
    wide_columns: Sequence[Any] | None,
    wide_optimizer: Any,
    sparse_combiner: str,
    deep_columns: Sequence[Any] | None,
    deep_optimizer: Any,
    hidden_units: Sequence[int] | None,
    activation_fn: Callable[[Any], Any] | None,
    dropout: float | None,
    partitioner: Any,
    batch_norm: bool,
) -> list[Part]:
    """Make the parts that have columns: a deep network, a linear model, or both.

    Raises:
        ValueError: neither part has columns, or the deep network has columns and no hidden units.
    """
    deep = Deep(
        hidden_units or (),
        list(deep_columns or ()),
        deep_optimizer,
        _COMBINED_DEEP_RATE,
        activation_fn,
        dropout,
        partitioner,
        batch_norm,
    )
    wide = Wide(list(wide_columns or ()), wide_optimizer, _COMBINED_WIDE_RATE, sparse_combiner, partitioner)
    if deep.columns and not deep.units:
        raise errors.InvalidValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")
    parts: list[Part] = [part for part in (deep, wide) if part.columns]
    if not parts:
        raise errors.InvalidValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
    return parts


class DNNLinearCombinedClassifier(Estimator):
    """`tf.estimator.DNNLinearCombinedClassifier`: classifies by the sum of a linear model and a deep network.

    Args:
        linear_feature_columns, linear_optimizer, linear_sparse_combiner: as in `LinearClassifier`.
        dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout: as in `DNNClassifier`.

    Other arguments, and errors, are those of `DNNClassifier`.

    Raises:
        ValueError: neither part has columns, or the network has columns and no hidden units.
    """

    def __init__(
        self,
        model_dir: _Folder = None,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Callable[[Any], Any] | None = nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = classifying_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        parts = _combined(
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            input_layer_partitioner,
            batch_norm,
        )
        super().__init__(_model_fn(head, parts), model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedRegressor(Estimator):
    """`tf.estimator.DNNLinearCombinedRegressor`: predicts numbers by the sum of a linear model and a deep network.

    Args:
        label_dimension: number of values per label.

    Other arguments, and errors, are those of `DNNLinearCombinedClassifier`.

    Raises:
        ValueError: `label_dimension` is below 1.
    """

    def __init__(
        self,
        model_dir: _Folder = None,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Callable[[Any], Any] | None = nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        parts = _combined(
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            input_layer_partitioner,
            batch_norm,
        )
        super().__init__(_model_fn(head, parts), model_dir, config, warm_start_from=warm_start_from)
