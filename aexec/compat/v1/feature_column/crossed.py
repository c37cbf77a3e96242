"""`crossed_column`: ids that are hashes of combinations of several features.

Next to read: `aexec/compat/v1/functions/sparse_crosses.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aexec.compat.v1.feature_column.categorical import HashedCategoricalColumn
from aexec.compat.v1.feature_column.column import CategoricalColumn
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.functions.io import VarLenFeature
from aexec.compat.v1.functions.sparse_crosses import cross_hashed
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors

__all__ = ["CrossedColumn", "crossed_column"]


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """Made by `crossed_column`."""

    keys: tuple[Any, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        return "_X_".join(sorted(key if isinstance(key, str) else key.name for key in self.leaves()))

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in self.keys:
            found |= {key: VarLenFeature(dtypes.string)} if isinstance(key, str) else key.parse_example_spec
        return found

    def leaves(self) -> Iterator[Any]:
        """Yield the keys; a crossed column is replaced by its own leaves."""
        for key in self.keys:
            if isinstance(key, CrossedColumn):
                yield from key.leaves()
            else:
                yield key

    def transformed(self, features: FeatureValues) -> SparseTensor:
        """Ids [batch, n], int64.  Raises ValueError if a crossed column has weights."""
        return cross_hashed(
            [self._values(key, features) for key in self.leaves()], self.hash_bucket_size, self.hash_key
        )

    def _values(self, key: Any, features: FeatureValues) -> Any:
        if isinstance(key, str):
            return features.get(key)
        ids, weights = key.sparse(features)
        if weights is not None:
            raise errors.InvalidValueError(
                "crossed_column does not support weight_tensor, but the given column populates weight_tensor. "
                f"Given column: {key.name}"
            )
        return ids


def crossed_column(keys: Any, hash_bucket_size: int, hash_key: int | None = None) -> CrossedColumn:
    """`tf.feature_column.crossed_column`: ids that are hashes of all combinations of one value per feature.

    Args:
        keys: at least two: names of features, or categorical columns that are not hashed.
        hash_bucket_size: number of ids; they are in [0, hash_bucket_size).
        hash_key: combines the hashes of the values; by default TensorFlow's key.

    Raises:
        ValueError: there are fewer than two keys, a key is of another kind, or `hash_bucket_size` is below 1.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise errors.InvalidValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise errors.InvalidValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in keys:
        if not isinstance(key, str | CategoricalColumn):
            raise errors.InvalidValueError(
                "Unsupported key type. All keys must be either string, or categorical column except "
                f"HashedCategoricalColumn. Given: {key}"
            )
        if isinstance(key, HashedCategoricalColumn):
            raise errors.InvalidValueError(
                "categorical_column_with_hash_bucket is not supported for crossing: hashing twice makes collisions "
                f"likelier. Use the feature's name instead, {key.key!r}. Given: {key}"
            )
    return CrossedColumn(tuple(keys), hash_bucket_size, hash_key)
