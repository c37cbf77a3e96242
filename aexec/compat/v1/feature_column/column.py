"""The base classes of feature columns.  A column describes how a layer turns features into a tensor.

Columns compare by value: two columns with the same settings are equal.  Next to read: `features.py`, then `numeric.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor

if TYPE_CHECKING:
    from aexec.compat.v1.feature_column.features import FeatureValues

__all__ = [
    "CategoricalColumn",
    "DenseColumn",
    "FeatureColumn",
    "IdsAndWeights",
    "OfSequences",
    "SequenceColumn",
    "Weights",
    "checked_key",
    "in_order",
]


class IdsAndWeights(NamedTuple):
    """The output of a categorical column.

    Attributes:
        ids: [batch, …], int64.
        weights: a weight per id, float32, with the indices of `ids`; None for weight 1.
    """

    ids: SparseTensor
    weights: SparseTensor | None = None


class OfSequences(NamedTuple):
    """The output of a column of sequences.

    Attributes:
        values: [batch, time, …], float32.
        lengths: the length of each sequence, [batch], int64.
    """

    values: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class Weights:
    """Settings of the variables that a layer creates.

    Attributes:
        collections: names of the graph collections that the variables join.
        trainable: whether optimizers update the variables.
    """

    collections: tuple[str, ...]
    trainable: bool = True


class FeatureColumn:
    """The base of all columns."""

    @property
    def name(self) -> str:
        """The sort key; unique among the columns of a layer."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """The name of the scope in which a layer creates the column's variables."""
        return self.name

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """The features that the column reads: name → parsing configuration, as `tf.parse_example` takes them."""
        raise NotImplementedError

    def transformed(self, features: FeatureValues) -> Any:
        """Transform the features that the column reads.  Call `features.get(column)`, which caches the result."""
        raise NotImplementedError


class DenseColumn(FeatureColumn):
    """A column that gives `input_layer` a tensor [batch, *variable_shape], float32."""

    @property
    def variable_shape(self) -> TensorShape:
        """The shape of one example."""
        raise NotImplementedError

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        """The tensor, [batch, *variable_shape], float32.  Creates variables in the current scope."""
        raise NotImplementedError


class SequenceColumn(FeatureColumn):
    """A column that gives `sequence_input_layer` a tensor [batch, time, *variable_shape], float32."""

    @property
    def variable_shape(self) -> TensorShape:
        """The shape of one element of a sequence."""
        raise NotImplementedError

    def of_sequences(self, features: FeatureValues, weights: Weights) -> OfSequences:
        """The tensor and the lengths of its sequences.  Creates variables in the current scope."""
        raise NotImplementedError


class CategoricalColumn(FeatureColumn):
    """A column that gives each example any number of ids in [0, num_buckets)."""

    @property
    def num_buckets(self) -> int:
        """The number of different ids."""
        raise NotImplementedError

    def sparse(self, features: FeatureValues) -> IdsAndWeights:
        """The ids of each example; negative ids count as no value."""
        return IdsAndWeights(features.get(self))


def checked_key(key: Any) -> str:
    """Return the name of a feature.  Raises ValueError if it is not a string."""
    if not isinstance(key, str):
        raise errors.InvalidValueError(f"key must be a string. Got: type {type(key)}. Given key: {key}.")
    return key


def in_order(feature_columns: Any) -> list[FeatureColumn]:
    """The columns of a layer, sorted by name.

    Args:
        feature_columns: a column, or an iterable of columns.

    Raises:
        ValueError: there is no column, an item is not a column, two have the same name, or a mapping is given.
        TypeError: the argument is not iterable.
    """
    if isinstance(feature_columns, FeatureColumn):
        return [feature_columns]
    if isinstance(feature_columns, Mapping):
        raise errors.InvalidValueError("Expected feature_columns to be iterable, found dict.")
    if not isinstance(feature_columns, Iterable):
        raise errors.InvalidTypeError(f"feature_columns must be iterable, not {feature_columns!r}")
    columns = list(feature_columns)
    if not columns:
        raise errors.InvalidValueError("feature_columns must not be empty.")
    named: dict[str, FeatureColumn] = {}
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise errors.InvalidValueError(
                f"Items of feature_columns must be a _FeatureColumn. Given (type {type(column)}): {column}."
            )
        if column.name in named:
            raise errors.InvalidValueError(
                f"Duplicate feature column name found for columns: {column} and {named[column.name]}. They read the "
                "same feature: leave one out, or give the feature a second time under another name"
            )
        named[column.name] = column
    return [named[name] for name in sorted(named)]
