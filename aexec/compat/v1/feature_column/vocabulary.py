"""Columns of words whose ids are their places in a list or a file.

Next to read: `aexec/compat/v1/functions/lookup.py`, which has the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aexec import ops
from aexec.compat.v1.feature_column.categorical import check_kind, check_strings_or_integers
from aexec.compat.v1.feature_column.column import CategoricalColumn, checked_key
from aexec.compat.v1.feature_column.features import FeatureValues, as_sparse
from aexec.compat.v1.functions.io import VarLenFeature
from aexec.compat.v1.functions.lookup import index_table_from_file, index_table_from_tensor
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors

__all__ = [
    "VocabularyFileCategoricalColumn",
    "VocabularyListCategoricalColumn",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
]


class _VocabularyColumn(CategoricalColumn):
    """What both kinds share."""

    key: str
    dtype: Any

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    def _table(self) -> Any:
        raise NotImplementedError

    def transformed(self, features: FeatureValues) -> SparseTensor:
        """Ids [batch, …].  Raises ValueError if the feature has another type."""
        found = as_sparse(features.get(self.key))
        check_kind(self, found)
        if self.dtype.is_integer:
            found = found.with_values(ops.cast(found.values, DstT=dtypes.int64))
        ids: SparseTensor = self._table().lookup(found)
        return ids

    def _table_dtype(self) -> Any:
        return dtypes.int64 if self.dtype.is_integer else self.dtype


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(_VocabularyColumn):
    """Made by `categorical_column_with_vocabulary_list`."""

    key: str
    vocabulary_list: tuple[Any, ...]
    dtype: Any
    default_value: int
    num_oov_buckets: int

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary_list) + self.num_oov_buckets

    def _table(self) -> Any:
        return index_table_from_tensor(
            list(self.vocabulary_list), self.num_oov_buckets, self.default_value, dtype=self._table_dtype()
        )


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn(_VocabularyColumn):
    """Made by `categorical_column_with_vocabulary_file`."""

    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: Any
    default_value: int

    @property
    def num_buckets(self) -> int:
        return self.vocabulary_size + self.num_oov_buckets

    def _table(self) -> Any:
        return index_table_from_file(
            self.vocabulary_file,
            self.num_oov_buckets,
            self.vocabulary_size,
            self.default_value,
            key_dtype=self._table_dtype(),
        )


def categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Any, dtype: Any = None, default_value: int = -1, num_oov_buckets: int = 0
) -> VocabularyListCategoricalColumn:
    """`tf.feature_column.categorical_column_with_vocabulary_list`: the place of each word in a list.

    Args:
        key: name of the feature, dense or sparse; in a dense one "" and -1 mean none.
        vocabulary_list: strings or integers.
        dtype: of the feature; by default that of the list.
        default_value: the id of other words.
        num_oov_buckets: if not 0, other words have their hashes below that, behind the list.

    Raises:
        ValueError: the list is empty, has a word twice or is of another type than `dtype`, the number of buckets is
            negative, or there are a default and buckets.
    """
    checked_key(key)
    if vocabulary_list is None or len(vocabulary_list) < 1:
        raise errors.InvalidValueError(f"vocabulary_list {vocabulary_list} must be non-empty, column_name: {key}")
    if len(set(vocabulary_list)) != len(vocabulary_list):
        raise errors.InvalidValueError(f"Duplicate keys in vocabulary_list {vocabulary_list}, column_name: {key}")
    kind = dtypes.as_dtype(np.asarray(vocabulary_list).dtype)
    _check_others(key, default_value, num_oov_buckets)
    check_strings_or_integers(kind, f"column_name: {key} vocabulary")
    wanted = kind if dtype is None else dtypes.as_dtype(dtype)
    check_strings_or_integers(wanted, f"column_name: {key}")
    if kind.is_integer != wanted.is_integer:
        raise errors.InvalidValueError(
            f"dtype {wanted.name} and vocabulary dtype {kind.name} do not match, column_name: {key}"
        )
    return VocabularyListCategoricalColumn(key, tuple(vocabulary_list), wanted, default_value, num_oov_buckets)


def _check_others(key: str, default_value: int | None, num_oov_buckets: int) -> None:
    if num_oov_buckets and default_value not in (None, -1):
        raise errors.InvalidValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")
    if num_oov_buckets < 0:
        raise errors.InvalidValueError(f"Invalid num_oov_buckets {num_oov_buckets} in {key}.")


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> VocabularyFileCategoricalColumn:
    """`tf.feature_column.categorical_column_with_vocabulary_file`: the line of each word in a file.

    Args:
        key: name of the feature, dense or sparse; in a dense one "" and -1 mean none.
        vocabulary_size: so many lines are used; by default all, which are counted now.
        num_oov_buckets: if not 0, other words have their hashes below that, behind the lines.
        default_value: the id of other words, by default -1.
        dtype: of the feature, strings or integers.

    Raises:
        ValueError: no file is named, it is not there though its lines are to be counted, the size is below 1, the
            number of buckets is negative, or there are a default and buckets.
    """
    checked_key(key)
    if not vocabulary_file:
        raise errors.InvalidValueError(f"Missing vocabulary_file in {key}.")
    if vocabulary_size is not None and vocabulary_size < 1:
        raise errors.InvalidValueError(f"Invalid vocabulary_size in {key}.")
    _check_others(key, default_value, num_oov_buckets)
    kind = dtypes.as_dtype(dtype)
    check_strings_or_integers(kind, f"column_name: {key}")
    return VocabularyFileCategoricalColumn(
        key,
        vocabulary_file,
        _lines_of(vocabulary_file, key) if vocabulary_size is None else vocabulary_size,
        num_oov_buckets,
        kind,
        -1 if default_value is None else default_value,
    )


def _lines_of(path: str, key: str) -> int:
    if not Path(path).exists():
        raise errors.InvalidValueError(f"vocabulary_file in {key} does not exist.")
    with Path(path).open("rb") as file:
        return sum(1 for _ in file)
