"""Canned estimators: classifiers and regressors of feature columns, with a linear model, a deep network, or both.

Each is an `Estimator` whose model_fn is made of a `Head` and one or two `Part`s.  Variables have TensorFlow's names, so
that its checkpoints fit.
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

# The most that learning rates are, if only the name of an optimizer is given: of a part alone, and of one of two.
_DEEP_RATE, _WIDE_RATE = 0.05, 0.2
_DEEP_RATE_OF_TWO, _WIDE_RATE_OF_TWO = 0.001, 0.005

_Folder = str | os.PathLike[str] | None


def _model_fn(head: Head, parts: Sequence[Part]) -> Callable[..., EstimatorSpec]:
    """The model_fn of a head, whose logits are the sum of those of the parts."""

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
    """`tf.estimator.DNNClassifier`: a deep network.

    Args:
        hidden_units: of each hidden layer.
        feature_columns: dense ones.
        n_classes: two, with one logit, or more, with a logit each.
        weight_column: of the examples' weights: a numeric column, or the name of the feature.
        label_vocabulary: names of the classes, if labels are strings.
        optimizer: itself, a function that returns it, or one of "Adagrad", "Adam", "Ftrl", "RMSProp" and "SGD".
        activation_fn: of the hidden layers.
        dropout: the share of units that is dropped in training.
        input_layer_partitioner: of the variables of columns.
        loss_reduction: of a batch, one of `tf.losses.Reduction`'s.
        batch_norm: whether hidden layers are normalised.
        model_dir, config, warm_start_from: as of `Estimator`.

    Raises:
        ValueError: a number is out of its range, or names of classes are not as many as classes.
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
    """`tf.estimator.DNNRegressor`: a deep network.

    Args:
        label_dimension: numbers of a label.
        others: as of `DNNClassifier`.
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
    """`tf.estimator.LinearClassifier`: a linear model.

    Args:
        feature_columns: dense or categorical ones.
        partitioner: of the variables.
        sparse_combiner: of the weights of several ids: "sum", "mean" or "sqrtn".
        others: as of `DNNClassifier`.
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
    """`tf.estimator.LinearRegressor`: a linear model.

    Args:
        label_dimension: numbers of a label.
        others: as of `LinearClassifier`.
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


def _both(deep: Deep, wide: Wide) -> list[Part]:
    """The parts that have columns.  Raises ValueError if none has, or a deep one has no layers."""
    if deep.columns and not deep.units:
        raise errors.InvalidValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")
    parts: list[Part] = [part for part in (deep, wide) if part.columns]
    if not parts:
        raise errors.InvalidValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
    return parts


class DNNLinearCombinedClassifier(Estimator):
    """`tf.estimator.DNNLinearCombinedClassifier`: the sum of a linear model and a deep network.

    Args:
        linear_feature_columns, linear_optimizer, linear_sparse_combiner: as of `LinearClassifier`.
        dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout: as of `DNNClassifier`.
        others: as of `DNNClassifier`.

    Raises:
        ValueError: neither has columns, or the network has no hidden units.
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
        deep = Deep(
            dnn_hidden_units or (),
            list(dnn_feature_columns or ()),
            dnn_optimizer,
            _DEEP_RATE_OF_TWO,
            dnn_activation_fn,
            dnn_dropout,
            input_layer_partitioner,
            batch_norm,
        )
        wide = Wide(
            list(linear_feature_columns or ()),
            linear_optimizer,
            _WIDE_RATE_OF_TWO,
            linear_sparse_combiner,
            input_layer_partitioner,
        )
        super().__init__(_model_fn(head, _both(deep, wide)), model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedRegressor(Estimator):
    """`tf.estimator.DNNLinearCombinedRegressor`: the sum of a linear model and a deep network.

    Args:
        label_dimension: numbers of a label.
        others: as of `DNNLinearCombinedClassifier`.
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
        deep = Deep(
            dnn_hidden_units or (),
            list(dnn_feature_columns or ()),
            dnn_optimizer,
            _DEEP_RATE_OF_TWO,
            dnn_activation_fn,
            dnn_dropout,
            input_layer_partitioner,
            batch_norm,
        )
        wide = Wide(
            list(linear_feature_columns or ()),
            linear_optimizer,
            _WIDE_RATE_OF_TWO,
            linear_sparse_combiner,
            input_layer_partitioner,
        )
        super().__init__(_model_fn(head, _both(deep, wide)), model_dir, config, warm_start_from=warm_start_from)
