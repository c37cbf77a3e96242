"""Columns of numbers: `numeric_column`, and `bucketized_column`, which sorts them into ranges.

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
from aexec.compat.v1.feature_column.column import CategoricalColumn, DenseColumn, IdsAndWeights, Weights, checked_key
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.functions.io import FixedLenFeature
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor

__all__ = ["BucketizedColumn", "NumericColumn", "bucketized_column", "checked_shape", "numeric_column"]


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """Made by `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: Any
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def variable_shape(self) -> TensorShape:
        return TensorShape(self.shape)

    def transformed(self, features: FeatureValues) -> Tensor:
        """[batch, …], float32.  Raises ValueError for a sparse tensor."""
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
    """`tf.feature_column.numeric_column`: numbers as they are.

    Args:
        key: name of the feature, a dense tensor [batch, *shape].
        default_value: of the feature where a parsed example has none: a number, or numbers in the given shape.
        dtype: of the parsed feature; integers or reals.
        normalizer_fn: applied to the tensor.

    Raises:
        ValueError: `key` is no string, `shape` has a size below 1 or is not that of the default, or `dtype` is not a
            number's.
        TypeError: the default is of another type, a size is no integer, or `normalizer_fn` cannot be called.
    """
    sizes = checked_shape(shape, checked_key(key))
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise errors.InvalidValueError(f"dtype must be convertible to float. dtype: {kind.name}, key: {key}")
    default = None if default_value is None else _checked_default(default_value, sizes, kind, key)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise errors.InvalidTypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    return NumericColumn(key, sizes, default, kind, normalizer_fn)


def checked_shape(shape: Any, key: str) -> tuple[int, ...]:
    """The sizes of an example, from a number or several.  Raises TypeError and ValueError."""
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
    """Nested tuples of the given shape."""
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
    """Made by `bucketized_column`.  Both dense, a 1 for the range of each number, and categorical."""

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
        """The range of each number, [batch, n], int32."""
        return ops.bucketize(features.get(self.source_column), boundaries=list(map(float, self.boundaries)))

    def dense(self, features: FeatureValues, weights: Weights) -> Tensor:
        return ops.one_hot(features.get(self), self._ranges, 1.0, 0.0)

    def sparse(self, features: FeatureValues) -> IdsAndWeights:
        """An id for each number: those of the second follow after those of the first."""
        ranges: Tensor = features.get(self)
        at = ops.cast(ranges, DstT=dtypes.int64)
        count = self.source_column.shape[0]
        first = np.arange(count, dtype=np.int64) * self._ranges
        sizes = ops.shape(at, out_type=dtypes.int64)
        places = ops.where(ops.ones_like(at))
        return IdsAndWeights(SparseTensor(places, ops.reshape(at + first, [-1]), sizes))


def bucketized_column(source_column: NumericColumn, boundaries: Any) -> BucketizedColumn:
    """`tf.feature_column.bucketized_column`: in which range each number is.

    Args:
        source_column: of `numeric_column`, with one axis.
        boundaries: where a range begins, which includes its first number; increasing.

    Raises:
        ValueError: the source is no such column, or the boundaries are none or do not increase.
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
