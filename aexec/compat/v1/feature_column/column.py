"""What a feature column is: a description of a feature, which becomes tensors when a layer is made of it.

Columns are values: two of the same settings are equal.  Next to read: `features.py`, then `numeric.py`.
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
    """What a categorical column makes of a feature.

    Attributes:
        ids: [batch, …], int64.
        weights: of the same indices, float32; None for 1 each.
    """

    ids: SparseTensor
    weights: SparseTensor | None = None


class OfSequences(NamedTuple):
    """What a column makes of a feature of sequences.

    Attributes:
        values: [batch, time, …], float32.
        lengths: of the sequences, [batch], int64.
    """

    values: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class Weights:
    """How the variables of a layer are made.

    Attributes:
        collections: those that they join.
        trainable: False if no optimizer changes them.
    """

    collections: tuple[str, ...]
    trainable: bool = True


class FeatureColumn:
    """The base of all columns."""

    @property
    def name(self) -> str:
        """What it is sorted by; no two columns of a layer have the same."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """Of the scope of its variables."""
        return self.name

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """The features that it reads, as `tf.parse_example` takes them."""
        raise NotImplementedError

    def transformed(self, features: FeatureValues) -> Any:
        """What it makes of its features; `features.get(column)` makes it once."""
        raise NotImplementedError


class DenseColumn(FeatureColumn):
    """A column whose tensor may enter a layer: [batch, *variable_shape], float32."""

    @property
    def variable_shape(self) -> TensorShape:
        """The shape of one example."""
        raise NotImplementedError

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        """The tensor; variables are made in the current scope."""
        raise NotImplementedError


class SequenceColumn(FeatureColumn):
    """A column whose tensor may enter a layer of sequences."""

    @property
    def variable_shape(self) -> TensorShape:
        """The shape of one element of a sequence."""
        raise NotImplementedError

    def of_sequences(self, features: FeatureValues, weights: Weights) -> OfSequences:
        """The tensor, [batch, time, *variable_shape]; variables are made in the current scope."""
        raise NotImplementedError


class CategoricalColumn(FeatureColumn):
    """A column of ids below `num_buckets`, any number for each example."""

    @property
    def num_buckets(self) -> int:
        """Ids are below it."""
        raise NotImplementedError

    def sparse(self, features: FeatureValues) -> IdsAndWeights:
        """The ids of each example.  Those below 0 mean nothing."""
        return IdsAndWeights(features.get(self))


def checked_key(key: Any) -> str:
    """The name of a feature.  Raises ValueError if it is no string."""
    if not isinstance(key, str):
        raise errors.InvalidValueError(f"key must be a string. Got: type {type(key)}. Given key: {key}.")
    return key


def in_order(feature_columns: Any) -> list[FeatureColumn]:
    """The columns of a layer, sorted by name.

    Args:
        feature_columns: a column, or an iterable of some.

    Raises:
        ValueError: there are none, one is no column, two have the same name, or they are given as a dictionary.
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
