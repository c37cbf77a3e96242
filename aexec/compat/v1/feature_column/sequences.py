"""Columns of sequences of ids and of numbers; the sequences of a batch may differ in length.

Next to read: `sequence_layer.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aexec import ops
from aexec.compat.v1.feature_column.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
)
from aexec.compat.v1.feature_column.column import (
    CategoricalColumn,
    IdsAndWeights,
    OfSequences,
    SequenceColumn,
    Weights,
)
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.feature_column.numeric import ColumnOfNumbers, checked_numbers
from aexec.compat.v1.feature_column.vocabulary import (
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from aexec.compat.v1.functions.io import VarLenFeature
from aexec.compat.v1.functions.sparse_ops import sparse_reshape
from aexec.compat.v1.values.sparse import SparseTensor, sparse_tensor_to_dense
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "SequenceCategoricalColumn",
    "SequenceNumericColumn",
    "check_of_examples",
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_lengths",
    "sequence_numeric_column",
]


@dataclass(frozen=True)
class SequenceCategoricalColumn(CategoricalColumn):
    """Made by the functions `sequence_categorical_column_with_*`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return self.categorical_column.name

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    def transformed(self, features: FeatureValues) -> IdsAndWeights:
        """Ids [batch, time, n].  An embedding combines the ids of a time step, and keeps time steps apart."""
        ids, weights = self.categorical_column.sparse(features)
        return IdsAndWeights(_by_time(ids), None if weights is None else _by_time(weights))

    def sparse(self, features: FeatureValues) -> IdsAndWeights:
        found: IdsAndWeights = features.get(self)
        return found


def _by_time(sparse: SparseTensor) -> SparseTensor:
    sizes = sparse.dense_shape
    return sparse_reshape(sparse, ops.concat_v2([sizes[:2], ops.prod(sizes[2:], [0], keep_dims=True)], 0))


def _lengths(sparse: SparseTensor, each: int = 1) -> Tensor:
    """The length of each sequence, [batch], int64: positions of the second axis up to the last value, over `each`."""
    count = sparse.indices[:, 1] + convert_to_tensor(1, dtypes.int64)
    last = ops.unsorted_segment_max(count, sparse.indices[:, 0], sparse.dense_shape[0])
    more = convert_to_tensor(each - 1, dtypes.int64)
    return ops.floor_div(
        ops.maximum(last, convert_to_tensor(0, dtypes.int64)) + more, convert_to_tensor(each, dtypes.int64)
    )


def check_of_examples(column: CategoricalColumn, where: str) -> None:
    """Raise ValueError if a column is of sequences, which `input_layer` does not accept; `where` is for the message."""
    if isinstance(column, SequenceCategoricalColumn):
        raise errors.InvalidValueError(
            f"In {where}. categorical_column must not be of type _SequenceCategoricalColumn. Use a "
            "categorical_column_with_* that is not of sequences; or, for a layer of sequences, "
            f"tf.contrib.feature_column.sequence_input_layer. Given (type {type(column).__name__}): {column}"
        )


def sequence_lengths(column: CategoricalColumn, features: FeatureValues, where: str) -> Tensor:
    """The lengths of a column's sequences, [batch], int64.  Raises ValueError if the column is not of sequences."""
    if not isinstance(column, SequenceCategoricalColumn):
        raise errors.InvalidValueError(
            f"In {where}. categorical_column must be of type SequenceCategoricalColumn in a layer of sequences. Use "
            f"one of sequence_categorical_column_with_*. Given (type {type(column).__name__}): {column}"
        )
    return _lengths(column.sparse(features).ids)


@dataclass(frozen=True)
class SequenceNumericColumn(ColumnOfNumbers, SequenceColumn):
    """Made by `sequence_numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: Any
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    def transformed(self, features: FeatureValues) -> SparseTensor:
        """The feature after `normalizer_fn`.  Raises TypeError if the feature is dense."""
        found = features.get(self.key)
        if not isinstance(found, SparseTensor):
            raise errors.InvalidTypeError(f"Input must be a SparseTensor. key: {self.key}. Given: {found}")
        return found if self.normalizer_fn is None else self.normalizer_fn(found)

    def of_sequences(self, features: FeatureValues, weights: Weights) -> OfSequences:
        found: SparseTensor = features.get(self)
        numbers = sparse_tensor_to_dense(found, self.default_value)
        sizes = ops.concat_v2([ops.shape(numbers)[:1], [-1, *self.shape]], 0)
        each = self.variable_shape.num_elements() if found.shape.ndims == 2 else 1
        return OfSequences(ops.cast(ops.reshape(numbers, sizes), DstT=dtypes.float32), _lengths(found, each or 1))


def sequence_numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: float = 0.0,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> SequenceNumericColumn:
    """`tf.feature_column.sequence_numeric_column`: sequences of numbers, converted to float32.

    Args:
        key: name of the feature, a sparse tensor [batch, time * elements] or [batch, time, elements].
        shape: shape of one element of a sequence.
        default_value: fills positions at which the sparse tensor has no value.
        dtype: dtype of the parsed feature, integer or floating.
        normalizer_fn: applied to the sparse tensor; returns a sparse tensor.

    Raises:
        ValueError: `key` is not a string, a size in `shape` is below 1, or `dtype` is neither integer nor floating.
        TypeError: a size is not an integer, or `normalizer_fn` is not callable.
    """
    sizes, kind = checked_numbers(key, shape, dtype, normalizer_fn)
    return SequenceNumericColumn(key, sizes, default_value, kind, normalizer_fn)


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """`tf.feature_column.sequence_categorical_column_with_identity`: sequences of ids.

    Arguments and errors are those of `categorical_column_with_identity`; the feature is [batch, time, …].
    """
    return SequenceCategoricalColumn(categorical_column_with_identity(key, num_buckets, default_value))


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> SequenceCategoricalColumn:
    """`tf.feature_column.sequence_categorical_column_with_hash_bucket`: sequences of hashes.

    Arguments and errors are those of `categorical_column_with_hash_bucket`; the feature is [batch, time, …].
    """
    return SequenceCategoricalColumn(categorical_column_with_hash_bucket(key, hash_bucket_size, dtype))


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> SequenceCategoricalColumn:
    """`tf.feature_column.sequence_categorical_column_with_vocabulary_file`: sequences of words in a file.

    Arguments and errors are those of `categorical_column_with_vocabulary_file`; the feature is [batch, time, …].
    """
    return SequenceCategoricalColumn(
        categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, num_oov_buckets, default_value, dtype
        )
    )


def sequence_categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Any, dtype: Any = None, default_value: int = -1, num_oov_buckets: int = 0
) -> SequenceCategoricalColumn:
    """`tf.feature_column.sequence_categorical_column_with_vocabulary_list`: sequences of words in a list.

    Arguments and errors are those of `categorical_column_with_vocabulary_list`; the feature is [batch, time, …].
    """
    return SequenceCategoricalColumn(
        categorical_column_with_vocabulary_list(key, vocabulary_list, dtype, default_value, num_oov_buckets)
    )
