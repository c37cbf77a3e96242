"""`embedding_column` and `shared_embedding_columns`: look up rows of a variable by id, and combine them per example.

Next to read: `aexec/nn/sparse_embeddings.py`, then `inputs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aexec import nn
from aexec.compat.v1.feature_column.categorical import WeightedCategoricalColumn
from aexec.compat.v1.feature_column.column import (
    CategoricalColumn,
    DenseColumn,
    IdsAndWeights,
    OfSequences,
    SequenceColumn,
    Weights,
)
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.feature_column.sequences import check_of_examples, sequence_lengths
from aexec.compat.v1.functions.variables import get_variable
from aexec.compat.v1.networks.initializers import truncated_normal_initializer
from aexec.compat.v1.running.checkpoints import init_from_checkpoint
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import require_graph

__all__ = ["EmbeddingColumn", "SharedEmbeddingColumn", "embedding_column", "shared_embedding_columns"]


@dataclass(frozen=True)
class EmbeddingColumn(DenseColumn, SequenceColumn):
    """Made by `embedding_column`."""

    categorical_column: CategoricalColumn
    dimension: int
    combiner: Any
    initializer: Callable[..., Any]
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool
    use_safe_embedding_lookup: bool

    _kind = "embedding_column"

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_embedding"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape([self.dimension])

    def transformed(self, features: FeatureValues) -> IdsAndWeights:
        """The ids and weights of the categorical column."""
        return self.categorical_column.sparse(features)

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        check_of_examples(self.categorical_column, f"{self._kind}: {self.name}")
        return self._combined(self.table(weights), features.get(self))

    def of_sequences(self, features: FeatureValues, weights: Weights) -> OfSequences:
        lengths = sequence_lengths(self.categorical_column, features, f"{self._kind}: {self.name}")
        return OfSequences(self._combined(self.table(weights), features.get(self)), lengths)

    def table(self, weights: Weights) -> Any:
        """Get or create the variable `embedding_weights` in the current scope, [num_buckets, dimension], float32."""
        made: Any = get_variable(
            "embedding_weights",
            [self.categorical_column.num_buckets, self.dimension],
            dtypes.float32,
            self.initializer,
            trainable=self.trainable and weights.trainable,
            collections=list(weights.collections),
        )
        if self.ckpt_to_load_from is not None:
            init_from_checkpoint(self.ckpt_to_load_from, {self.tensor_name_in_ckpt: made})
        return made

    def _combined(self, table: Any, found: IdsAndWeights) -> Tensor:
        """Look up ids [batch, …, n] and combine the rows of the last axis: [batch, …, dimension]."""
        rank = found.ids.shape.ndims
        if self.use_safe_embedding_lookup or rank is None or rank > 2:
            return nn.safe_embedding_lookup_sparse(
                table, found.ids, found.weights, combiner=self.combiner, max_norm=self.max_norm
            )
        return nn.embedding_lookup_sparse(
            table, found.ids, found.weights, "div", combiner=self.combiner, max_norm=self.max_norm
        )


@dataclass(frozen=True)
class SharedEmbeddingColumn(EmbeddingColumn):
    """One of the columns made by `shared_embedding_columns`."""

    shared_embedding_collection_name: str

    _kind = "shared_embedding_column"

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_shared_embedding"

    @property
    def scope_name(self) -> str:
        return self.shared_embedding_collection_name

    def table(self, weights: Weights) -> Any:
        """Return the variable in the columns' collection; the first column creates it and adds it.

        Raises:
            ValueError: the collection holds several items, or one of another shape.
        """
        collections = require_graph().collections
        there = list(collections.get(self.shared_embedding_collection_name))
        if not there:
            made = super().table(weights)
            collections.add(self.shared_embedding_collection_name, made)
            return made
        shape = [self.categorical_column.num_buckets, self.dimension]
        if len(there) > 1 or list(there[0].static_shape) != shape:
            raise errors.InvalidValueError(
                f"Collection {self.shared_embedding_collection_name} must have one variable of shape {shape}, that of "
                f"the shared embedding. It has: {there}"
            )
        return there[0]


def embedding_column(
    categorical_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:
    """`tf.feature_column.embedding_column`: look up a row per id in a variable, and combine each example's rows.

    Args:
        categorical_column: gives the ids.
        dimension: size of a row.
        combiner, max_norm: as in `tf.nn.embedding_lookup_sparse`.
        initializer: initializer of the variable; by default a truncated normal with standard deviation 1 / √dimension.
        ckpt_to_load_from, tensor_name_in_ckpt: a checkpoint, and the tensor in it that initialises the variable.
        trainable: whether optimizers update the variable.
        use_safe_embedding_lookup: False skips the handling of examples without ids and of negative ids.

    Raises:
        ValueError: `categorical_column` is not a categorical column, `dimension` is below 1, only one of the two
            checkpoint arguments is given, or `initializer` is not callable.
    """
    return EmbeddingColumn(
        _checked(categorical_column),
        _checked_dimension(dimension),
        combiner,
        _checked_initializer(initializer, dimension, f"Embedding of column_name: {categorical_column.name}"),
        *_checked_checkpoint(ckpt_to_load_from, tensor_name_in_ckpt),
        max_norm,
        trainable,
        use_safe_embedding_lookup,
    )


def _checked(column: Any) -> CategoricalColumn:
    if not isinstance(column, CategoricalColumn):
        raise errors.InvalidValueError(f"categorical_column must be a CategoricalColumn. Given: {column}")
    return column


def _checked_dimension(dimension: Any) -> int:
    if dimension is None or dimension < 1:
        raise errors.InvalidValueError(f"Invalid dimension {dimension}.")
    return int(dimension)


def _checked_checkpoint(path: str | None, name: str | None) -> tuple[str | None, str | None]:
    if (path is None) != (name is None):
        raise errors.InvalidValueError(
            "Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them."
        )
    return path, name


def _checked_initializer(initializer: Any, dimension: int, whose: str) -> Callable[..., Any]:
    if initializer is None:
        made: Callable[..., Any] = truncated_normal_initializer(0.0, 1 / math.sqrt(dimension))
        return made
    if not callable(initializer):
        raise errors.InvalidValueError(f"initializer must be callable if specified. {whose}")
    found: Callable[..., Any] = initializer
    return found


def shared_embedding_columns(
    categorical_columns: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[SharedEmbeddingColumn]:
    """`tf.feature_column.shared_embedding_columns`: an embedding column per categorical column, all with one variable.

    Args:
        categorical_columns: columns of the same class and the same number of buckets.
        shared_embedding_collection_name: name of the variable's scope, and of the collection that holds the variable;
            by default made from the columns' names.

    Other arguments, and errors, are those of `embedding_column`.

    Raises:
        ValueError: the columns differ in class or in their number of buckets.
    """
    columns = list(categorical_columns)
    _check_alike(columns)
    name = shared_embedding_collection_name or "_".join([*sorted(c.name for c in columns), "shared_embedding"])
    size = _checked_dimension(dimension)
    initial = _checked_initializer(initializer, size, f"Shared embedding of columns: {name}")
    checkpoint = _checked_checkpoint(ckpt_to_load_from, tensor_name_in_ckpt)
    return [
        SharedEmbeddingColumn(
            column, size, combiner, initial, *checkpoint, max_norm, trainable, use_safe_embedding_lookup, name
        )
        for column in columns
    ]


def _check_alike(columns: Sequence[Any]) -> None:
    first, *others = [_unweighted(_checked(column)) for column in columns]
    for column in others:
        if type(column) is not type(first):
            raise errors.InvalidValueError(
                "To use shared_embedding_column, all categorical_columns must have the same type, or be "
                "weighted_categorical_column or sequence column of the same type. Given column: "
                f"{first} of type: {type(first)} does not match given column: {column} of type: {type(column)}"
            )
        if column.num_buckets != first.num_buckets:
            raise errors.InvalidValueError(
                "To use shared_embedding_column, all categorical_columns must have the same number of buckets. Given "
                f"column: {first} with buckets: {first.num_buckets} does not match column: {column} with buckets: "
                f"{column.num_buckets}"
            )


def _unweighted(column: CategoricalColumn) -> CategoricalColumn:
    return column.categorical_column if isinstance(column, WeightedCategoricalColumn) else column
