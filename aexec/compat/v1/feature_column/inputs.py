"""`input_layer`: concatenates the tensors of dense columns.

Next to read: `linear.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aexec import ops
from aexec.compat.v1.feature_column.column import DenseColumn, FeatureColumn, Weights, in_order
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.functions.array_ops import concat
from aexec.compat.v1.functions.variables import variable_scope
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import require_graph

__all__ = ["as_rows", "check_batches", "input_layer", "variables_of", "weights_in"]


def weights_in(weight_collections: Iterable[str] | None, trainable: bool) -> Weights:
    """Settings of variables that join the given collections, GLOBAL_VARIABLES and MODEL_VARIABLES."""
    names = [*(weight_collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return Weights(tuple(dict.fromkeys(names)), trainable)


def variables_of(scope: Any) -> list[Any]:
    """The variables whose names begin with a scope."""
    return list(require_graph().collections.get(GraphKeys.GLOBAL_VARIABLES, scope=f"{scope.name}/"))


def as_rows(column: DenseColumn, tensor: Tensor) -> Tensor:
    """Reshape a column's tensor to [batch, elements per example]."""
    return ops.reshape(tensor, ops.pack([ops.shape(tensor)[0], column.variable_shape.num_elements()]))


def check_batches(columns: Sequence[FeatureColumn], tensors: Sequence[Tensor]) -> None:
    """Raise ValueError if the static batch sizes of the tensors differ."""
    known: dict[int, str] = {}
    for column, tensor in zip(columns, tensors, strict=True):
        shape = tensor.static_shape
        if shape.rank and shape[0] is not None:
            known.setdefault(shape[0], column.name)
    if len(known) > 1:
        raise errors.InvalidValueError(
            "Batch size (first dimension) of each feature must be same. Batch size of columns "
            f"({', '.join(known.values())}): ({', '.join(map(str, known))})"
        )


def input_layer(
    features: Mapping[Any, Any],
    feature_columns: Any,
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> Tensor:
    """`tf.feature_column.input_layer`: concatenate the tensors of dense columns, in the order of the columns' names.

    Args:
        features: name → tensor, sparse tensor or array, [batch, …].
        feature_columns: dense columns.
        weight_collections: collections that new variables join, besides GLOBAL_VARIABLES and MODEL_VARIABLES.
        trainable: whether optimizers update the variables.
        cols_to_vars: a dict to fill: column → list of its variables.
        cols_to_output_tensors: a dict to fill: column → its part of the result.

    Returns:
        [batch, elements of all columns], float32.

    Raises:
        ValueError: a column is not dense, two have the same name, a feature is missing or has another dtype than its
            column, or the features differ in batch size.
    """
    columns = in_order(feature_columns)
    weights = weights_in(weight_collections, trainable)
    with variable_scope(None, "input_layer"):
        values = FeatureValues(features)
        rows = []
        for column in columns:
            if not isinstance(column, DenseColumn):
                raise errors.InvalidValueError(
                    "Items of feature_columns must be a _DenseColumn. You can wrap a categorical column with an "
                    f"embedding_column or indicator_column. Given: {column}"
                )
            with variable_scope(None, column.scope_name) as scope:
                rows.append(as_rows(column, column.dense(values, weights)))
            if cols_to_vars is not None:
                cols_to_vars[column] = variables_of(scope)
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = rows[-1]
        check_batches(columns, rows)
        joined: Tensor = concat(rows, 1)
        return joined
