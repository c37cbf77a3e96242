"""`indicator_column`: counts the ids of each example, as a dense tensor.

Next to read: `embedding.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aexec import ops
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
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["IndicatorColumn", "indicator_column"]


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn, SequenceColumn):
    """Made by `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape([1, self.categorical_column.num_buckets])

    def transformed(self, features: FeatureValues) -> Tensor:
        """The sum of the weights of each id, [batch, …, num_buckets], float32."""
        return _counts(self.categorical_column.sparse(features), self.categorical_column.num_buckets)

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        check_of_examples(self.categorical_column, f"indicator_column: {self.name}")
        found: Tensor = features.get(self)
        return found

    def of_sequences(self, features: FeatureValues, weights: Weights) -> OfSequences:
        lengths = sequence_lengths(self.categorical_column, features, f"indicator_column: {self.name}")
        return OfSequences(features.get(self), lengths)


def _counts(found: IdsAndWeights, buckets: int) -> Tensor:
    indices, ids, sizes = found.ids
    amounts = ops.ones_like(ops.cast(ids, DstT=dtypes.float32)) if found.weights is None else found.weights.values
    end = convert_to_tensor(buckets, dtypes.int64)
    is_one = ops.logical_and(ops.greater_equal(ids, convert_to_tensor(0, dtypes.int64)), ops.less(ids, end))
    kept = ops.reshape(ops.where(is_one), [-1])
    places = ops.concat_v2([indices[:, :-1], ops.expand_dims(ids, 1)], 1)
    shape = ops.concat_v2([sizes[:-1], ops.reshape(end, [1])], 0)
    return ops.scatter_nd(ops.gather_v2(places, kept, 0), ops.gather_v2(amounts, kept, 0), shape)


def indicator_column(categorical_column: Any) -> IndicatorColumn:
    """`tf.feature_column.indicator_column`: the count of each id in an example, or the sum of its weights.

    Raises:
        ValueError: `categorical_column` is not a categorical column.
    """
    if not isinstance(categorical_column, CategoricalColumn):
        raise errors.InvalidValueError(
            f"Unsupported input type. Input must be a CategoricalColumn. Given: {categorical_column}"
        )
    return IndicatorColumn(categorical_column)
