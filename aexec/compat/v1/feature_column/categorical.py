"""Categorical columns: a feature that holds ids, a feature that is hashed to ids, and ids with weights.

Next to read: `vocabulary.py`, then `crossed.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.compat.v1.feature_column.column import CategoricalColumn, IdsAndWeights, checked_key
from aexec.compat.v1.feature_column.features import FeatureValues, as_sparse
from aexec.compat.v1.functions.control_flow_ops import assert_greater_equal, assert_less
from aexec.compat.v1.functions.io import VarLenFeature
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "HashedCategoricalColumn",
    "IdentityCategoricalColumn",
    "WeightedCategoricalColumn",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "check_kind",
    "check_strings_or_integers",
    "weighted_categorical_column",
]


def check_strings_or_integers(dtype: Any, what: str) -> None:
    """Raise ValueError, with a message that begins with `what`, unless a dtype is string or an integer."""
    if not (dtype is dtypes.string or dtype.is_integer):
        raise errors.InvalidValueError(f"{what} dtype must be string or integer. dtype: {dtype.name}.")


def check_kind(column: Any, found: SparseTensor) -> None:
    """Raise ValueError unless column and feature are both of strings or both of integers."""
    check_strings_or_integers(found.dtype, f"column_name: {column.key} input_tensor")
    if column.dtype.is_integer != found.dtype.is_integer:
        raise errors.InvalidValueError(
            f"Column dtype and SparseTensors dtype must be compatible. key: {column.key}, column dtype: "
            f"{column.dtype.name}, tensor dtype: {found.dtype.name}"
        )


@dataclass(frozen=True)
class IdentityCategoricalColumn(CategoricalColumn):
    """Made by `categorical_column_with_identity`."""

    key: str
    number_buckets: int
    default_value: int | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(dtypes.int64)}

    def transformed(self, features: FeatureValues) -> SparseTensor:
        """Ids [batch, …], int64.  Raises ValueError if the feature is not of integers."""
        found = as_sparse(features.get(self.key))
        if not found.dtype.is_integer:
            raise errors.InvalidValueError(f"Invalid input, not integer. key: {self.key} dtype: {found.dtype.name}")
        return found.with_values(self._within(ops.cast(found.values, DstT=dtypes.int64)))

    def _within(self, ids: Tensor) -> Tensor:
        end = convert_to_tensor(self.number_buckets, dtypes.int64)
        zero = convert_to_tensor(0, dtypes.int64)
        if self.default_value is None:
            message = f"ids of column {self.key} must be in [0, {self.number_buckets})"
            checks = [assert_greater_equal(ids, zero, message=message), assert_less(ids, end, message=message)]
            with control_dependencies(checks):
                return ops.identity(ids)
        is_outside = ops.logical_or(ops.less(ids, zero), ops.greater_equal(ids, end))
        return ops.select_v2(is_outside, convert_to_tensor(self.default_value, dtypes.int64), ids)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """`tf.feature_column.categorical_column_with_identity`: a feature whose integers are ids.

    Args:
        key: name of the feature: integers, dense or sparse.  In a dense feature, -1 means "no value".
        num_buckets: number of ids; they are in [0, num_buckets).
        default_value: id that replaces integers out of range; None to fail the run instead.

    Raises:
        ValueError: `key` is not a string, `num_buckets` is below 1, or `default_value` is out of range.
    """
    checked_key(key)
    if num_buckets < 1:
        raise errors.InvalidValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise errors.InvalidValueError(
            f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}"
        )
    return IdentityCategoricalColumn(key, num_buckets, default_value)


@dataclass(frozen=True)
class HashedCategoricalColumn(CategoricalColumn):
    """Made by `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: Any

    @property
    def name(self) -> str:
        return self.key

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    def transformed(self, features: FeatureValues) -> SparseTensor:
        """Ids [batch, …], int64.  Raises ValueError if the feature has another dtype than the column."""
        found = as_sparse(features.get(self.key))
        check_kind(self, found)
        words = found.values if self.dtype is dtypes.string else ops.as_string(found.values)
        return found.with_values(ops.string_to_hash_bucket_fast(words, self.hash_bucket_size))


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> HashedCategoricalColumn:
    """`tf.feature_column.categorical_column_with_hash_bucket`: a feature whose strings or integers are hashed to ids.

    Args:
        key: name of the feature, dense or sparse.  In a dense feature, "" and -1 mean "no value".
        hash_bucket_size: number of ids; they are in [0, hash_bucket_size).
        dtype: dtype of the feature: string or an integer.

    Raises:
        ValueError: `key` is not a string, `hash_bucket_size` is below 1, or `dtype` is another.
    """
    if hash_bucket_size is None:
        raise errors.InvalidValueError(f"hash_bucket_size must be set. key: {key}")
    if hash_bucket_size < 1:
        raise errors.InvalidValueError(
            f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}"
        )
    kind = dtypes.as_dtype(dtype)
    check_strings_or_integers(kind, f"column_name: {checked_key(key)}")
    return HashedCategoricalColumn(key, hash_bucket_size, kind)


@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    """Made by `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: Any

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {**self.categorical_column.parse_example_spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    def transformed(self, features: FeatureValues) -> IdsAndWeights:
        """Ids and float32 weights.  Raises ValueError if the weight feature's dtype is not that of the column."""
        weights = features.get(self.weight_feature_key)
        if weights.dtype.base is not self.dtype:
            raise errors.InvalidValueError(f"Bad dtype, expected {self.dtype.name}, but got {weights.dtype.base.name}.")
        listed = as_sparse(weights, 0)
        real = listed.with_values(ops.cast(listed.values, DstT=dtypes.float32))
        return IdsAndWeights(self.categorical_column.sparse(features).ids, real)

    def sparse(self, features: FeatureValues) -> IdsAndWeights:
        found: IdsAndWeights = features.get(self)
        return found


def weighted_categorical_column(
    categorical_column: Any, weight_feature_key: str, dtype: Any = dtypes.float32
) -> WeightedCategoricalColumn:
    """`tf.feature_column.weighted_categorical_column`: ids whose weights come from another feature.

    Args:
        categorical_column: gives the ids.
        weight_feature_key: name of the weight feature, with a value per id.  In a dense feature, 0 means "no value".
        dtype: dtype of the weight feature, a number.

    Raises:
        ValueError: `categorical_column` is not a categorical column, or `dtype` is not a number.
    """
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise errors.InvalidValueError(f"dtype {kind.name} is not convertible to float.")
    if not isinstance(categorical_column, CategoricalColumn):
        raise errors.InvalidValueError(f"categorical_column must be a CategoricalColumn. Given: {categorical_column}")
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, kind)
