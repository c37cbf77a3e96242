"""Columns of ids: those of a feature itself, hashes of it, and ids with weights.

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
    """Raises ValueError for other types; `what` begins the message."""
    if not (dtype is dtypes.string or dtype.is_integer):
        raise errors.InvalidValueError(f"{what} dtype must be string or integer. dtype: {dtype.name}.")


def check_kind(column: Any, found: SparseTensor) -> None:
    """Raises ValueError unless the feature is of strings if the column is, and of integers if the column is."""
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
        """Ids [batch, …].  Raises ValueError if the feature has no integers."""
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
    """`tf.feature_column.categorical_column_with_identity`: the feature's integers are ids.

    Args:
        key: name of the feature, integers, dense or sparse; in a dense one -1 means none.
        num_buckets: ids are below it.
        default_value: the id for integers outside; None to fail when there is one.

    Raises:
        ValueError: `key` is no string, there is no bucket, or the default is no id.
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
        """Ids [batch, …].  Raises ValueError if the feature has another type."""
        found = as_sparse(features.get(self.key))
        check_kind(self, found)
        words = found.values if self.dtype is dtypes.string else ops.as_string(found.values)
        return found.with_values(ops.string_to_hash_bucket_fast(words, self.hash_bucket_size))


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> HashedCategoricalColumn:
    """`tf.feature_column.categorical_column_with_hash_bucket`: hashes of strings or integers.

    Args:
        key: name of the feature, dense or sparse; in a dense one "" and -1 mean none.
        hash_bucket_size: hashes are below it.

    Raises:
        ValueError: `key` is no string, the size is below 1, or `dtype` is neither of strings nor of integers.
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
        """Ids and their weights.  Raises ValueError if the weights have another type than the column says."""
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
    """`tf.feature_column.weighted_categorical_column`: ids with weights, which are another feature.

    Args:
        weight_feature_key: name of a feature with as many values as the ids have; in a dense one 0 means none.
        dtype: of the weights.

    Raises:
        ValueError: `categorical_column` is none, or the weights are no numbers.
    """
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise errors.InvalidValueError(f"dtype {kind.name} is not convertible to float.")
    if not isinstance(categorical_column, CategoricalColumn):
        raise errors.InvalidValueError(f"categorical_column must be a CategoricalColumn. Given: {categorical_column}")
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, kind)
