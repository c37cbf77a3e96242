"""Columns of numbers: `numeric_column`, and `bucketized_column`, which assigns them to ranges.

Next to read: `categorical.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from aexec import ops
from aexec.compat.v1.feature_column.column import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    IdsAndWeights,
    Weights,
    checked_key,
)
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.functions.io import FixedLenFeature
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor

__all__ = [
    "BucketizedColumn",
    "ColumnOfNumbers",
    "NumericColumn",
    "bucketized_column",
    "checked_numbers",
    "numeric_column",
]


class ColumnOfNumbers(FeatureColumn):
    """The base of columns of numbers, of examples and of sequences.

    Attributes:
        key: name of the feature.
        shape: shape of one element.
    """

    key: str
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.key

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape(self.shape)


@dataclass(frozen=True)
class NumericColumn(ColumnOfNumbers, DenseColumn):
    """Made by `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: Any
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    def transformed(self, features: FeatureValues) -> Tensor:
        """The feature after `normalizer_fn`, [batch, *shape], float32.  Raises ValueError if the feature is sparse."""
        found = features.get(self.key)
        if isinstance(found, SparseTensor):
            raise errors.InvalidValueError(
                "The corresponding Tensor of numerical column must be a Tensor. SparseTensor is not supported. "
                f"key: {self.key}"
            )
        normal = found if self.normalizer_fn is None else self.normalizer_fn(found)
        return ops.cast(normal, DstT=dtypes.float32)

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        found: Tensor = features.get(self)
        return found


def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """`tf.feature_column.numeric_column`: a feature of numbers, converted to float32.

    Args:
        key: name of the feature, a dense tensor [batch, *shape].
        shape: shape of one example.
        default_value: value of the feature in a parsed example that lacks it: a number, or numbers of shape `shape`.
        dtype: dtype of the parsed feature, integer or floating.
        normalizer_fn: applied to the tensor.

    Raises:
        ValueError: `key` is not a string, a size in `shape` is below 1, `default_value` has another shape, or `dtype`
            is neither integer nor floating.
        TypeError: `default_value` does not fit `dtype`, a size is not an integer, or `normalizer_fn` is not callable.
    """
    sizes, kind = checked_numbers(key, shape, dtype, normalizer_fn)
    default = None if default_value is None else _checked_default(default_value, sizes, kind, key)
    return NumericColumn(key, sizes, default, kind, normalizer_fn)


def checked_numbers(key: Any, shape: Any, dtype: Any, normalizer_fn: Any) -> tuple[tuple[int, ...], Any]:
    """Check the arguments that columns of numbers share; return the shape as a tuple, and the dtype.

    Raises:
        ValueError: `key` is not a string, a size in `shape` is below 1, or `dtype` is neither integer nor floating.
        TypeError: a size is not an integer, or `normalizer_fn` is not callable.
    """
    sizes = _checked_shape(shape, checked_key(key))
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise errors.InvalidValueError(f"dtype must be convertible to float. dtype: {kind.name}, key: {key}")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise errors.InvalidTypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    return sizes, kind


def _checked_shape(shape: Any, key: str) -> tuple[int, ...]:
    given = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    sizes = []
    for size in given:
        try:
            sizes.append(operator.index(getattr(size, "value", size)))
        except TypeError:
            raise errors.InvalidTypeError(f"shape dimensions must be integer. shape: {given}, key: {key}") from None
        if sizes[-1] < 1:
            raise errors.InvalidValueError(f"shape dimensions must be greater than 0. shape: {given}, key: {key}")
    return tuple(sizes)


def _checked_default(value: Any, shape: tuple[int, ...], dtype: Any, key: str) -> Any:
    """Broadcast a default value to a shape; return it as nested tuples, which are hashable."""
    array = np.asarray(value)
    if array.dtype.kind not in ("iu" if dtype.is_integer else "iuf"):
        raise errors.InvalidTypeError(
            f"default_value must be compatible with dtype. default_value: {value}, dtype: {dtype.name}, key: {key}"
        )
    if array.shape not in ((), shape):
        raise errors.InvalidValueError(
            f"The shape of default_value must be equal to given shape. default_value: {value}, shape: {shape}, "
            f"key: {key}"
        )
    return _nested(np.broadcast_to(array, shape).tolist())


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """Made by `bucketized_column`: dense, as a one-hot range per number, and categorical, with an id per range."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.source_column.parse_example_spec

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape([*self.source_column.shape, self._ranges])

    @property
    def num_buckets(self) -> int:
        return self._ranges * self.source_column.shape[0]

    @property
    def _ranges(self) -> int:
        return len(self.boundaries) + 1

    def transformed(self, features: FeatureValues) -> Tensor:
        """The index of each number's range, [batch, n], int32."""
        return ops.bucketize(features.get(self.source_column), boundaries=list(map(float, self.boundaries)))

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        return ops.one_hot(features.get(self), self._ranges, 1.0, 0.0)

    def sparse(self, features: FeatureValues) -> IdsAndWeights:
        """An id per number: range + position * number of ranges, so that positions have different ids."""
        ranges: Tensor = features.get(self)
        at = ops.cast(ranges, DstT=dtypes.int64)
        count = self.source_column.shape[0]
        first = np.arange(count, dtype=np.int64) * self._ranges
        sizes = ops.shape(at, out_type=dtypes.int64)
        places = ops.where(ops.ones_like(at))
        return IdsAndWeights(SparseTensor(places, ops.reshape(at + first, [-1]), sizes))


def bucketized_column(source_column: NumericColumn, boundaries: Any) -> BucketizedColumn:
    """`tf.feature_column.bucketized_column`: the range of each number.

    Args:
        source_column: a column of `numeric_column` with one axis.
        boundaries: a list or tuple of increasing numbers b₁ … bₙ, for the n + 1 ranges (-∞, b₁), [b₁, b₂), … [bₙ, ∞).

    Raises:
        ValueError: `source_column` is another, or `boundaries` are empty or do not increase.
    """
    if not isinstance(source_column, NumericColumn):
        raise errors.InvalidValueError(
            f"source_column must be a column generated with numeric_column(). Given: {source_column}"
        )
    if len(source_column.shape) > 1:
        raise errors.InvalidValueError(f"source_column must be one-dimensional column. Given: {source_column}")
    if not isinstance(boundaries, list | tuple):
        raise errors.InvalidValueError("boundaries must be a sorted list.")
    if not boundaries:
        raise errors.InvalidValueError("boundaries must not be empty.")
    if any(low >= high for low, high in pairwise(boundaries)):
        raise errors.InvalidValueError("boundaries must be a sorted list.")
    return BucketizedColumn(source_column, tuple(boundaries))
