"""`linear_model`: a weighted sum of columns plus a bias.

Next to read: `parsing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aexec import nn, ops
from aexec.compat.v1.feature_column.column import CategoricalColumn, DenseColumn, FeatureColumn, Weights, in_order
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.feature_column.inputs import as_rows, check_batches, variables_of, weights_in
from aexec.compat.v1.functions.sparse_ops import sparse_reshape
from aexec.compat.v1.functions.variables import get_variable, variable_scope
from aexec.compat.v1.networks.initializers import zeros_initializer
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.variables.partitioned_variable import PartitionedVariable

__all__ = ["linear_model"]


def linear_model(
    features: Mapping[Any, Any],
    feature_columns: Any,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Tensor:
    """`tf.feature_column.linear_model`: a weighted sum of columns plus a bias; weights and bias start at 0.

    Args:
        features: name → tensor, sparse tensor or array, [batch, …].
        feature_columns: dense or categorical columns.
        units: number of sums per example.
        sparse_combiner: how the weights of an example's ids are combined: "sum", "mean" or "sqrtn".
        weight_collections: collections that new variables join, besides GLOBAL_VARIABLES and MODEL_VARIABLES.
        trainable: whether optimizers update the variables.
        cols_to_vars: a dict to fill: column → list of its variables, and "bias" → list of the bias.

    Returns:
        [batch, units], float32.

    Raises:
        ValueError: a column is neither dense nor categorical, two have the same name, a feature is missing or has
            another dtype than its column, or the features differ in batch size.
    """
    columns = in_order(feature_columns)
    weights = weights_in(weight_collections, trainable)
    with variable_scope(None, "linear_model") as scope:
        model = _last(scope.name)
    # TensorFlow makes column scopes unique outside the model's scope, so a second model's column `x` is `x_1`.
    named = _named(columns)
    found: dict[Any, Any] = {}
    with variable_scope(model):
        values = FeatureValues(features)
        sums = []
        for name in sorted(named):
            with variable_scope(name) as scope:
                sums.append(_weighted(named[name], values, units, sparse_combiner, weights))
            found[named[name]] = variables_of(scope)
        check_batches([named[name] for name in sorted(named)], sums)
        bias = _zeros("bias_weights", [units], weights)
        found["bias"] = list(bias) if isinstance(bias, PartitionedVariable) else [bias]
        if cols_to_vars is not None:
            cols_to_vars.update(found)
        return ops.bias_add(ops.add_n(sums, name="weighted_sum_no_bias"), bias, name="weighted_sum")


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _named(columns: Iterable[FeatureColumn]) -> dict[str, FeatureColumn]:
    named = {}
    for column in columns:
        with variable_scope(None, column.scope_name) as scope:
            named[_last(scope.name)] = column
    return named


def _zeros(name: str, shape: list[Any], weights: Weights) -> Any:
    initial = zeros_initializer()
    collections = list(weights.collections)
    return get_variable(name, shape, dtypes.float32, initial, trainable=weights.trainable, collections=collections)


def _weighted(column: Any, features: FeatureValues, units: int, combiner: Any, weights: Weights) -> Tensor:
    """The contribution of one column, [batch, units].  Raises ValueError if it is neither dense nor categorical."""
    if isinstance(column, CategoricalColumn):
        table = _zeros("weights", [column.num_buckets, units], weights)
        ids, amounts = column.sparse(features)
        given = None if amounts is None else _as_matrix(amounts)
        return nn.safe_embedding_lookup_sparse(table, _as_matrix(ids), given, combiner=combiner)
    if not isinstance(column, DenseColumn):
        raise errors.InvalidValueError(
            f"Items of feature_columns must be either a _DenseColumn or _CategoricalColumn. Given: {column}"
        )
    factors = _zeros("weights", [column.variable_shape.num_elements(), units], weights)
    return ops.mat_mul(as_rows(column, column.dense(features, weights)), factors)


def _as_matrix(sparse: SparseTensor) -> SparseTensor:
    return sparse_reshape(sparse, ops.pack([sparse.dense_shape[0], -1]))
