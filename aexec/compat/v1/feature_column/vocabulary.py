"""Categorical columns with a vocabulary: the id of a word is its position in a list or a file.

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
    """The base of columns with a vocabulary.

    Attributes:
        key: name of the feature.
        dtype: dtype of the feature: string or an integer.
    """

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
        """Ids [batch, …], int64.  Raises ValueError if the feature has another dtype than the column."""
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
    """`tf.feature_column.categorical_column_with_vocabulary_list`: ids that are positions in a list.

    Args:
        key: name of the feature, dense or sparse.  In a dense feature, "" and -1 mean "no value".
        vocabulary_list: strings or integers, without duplicates.
        dtype: dtype of the feature; by default that of the list.
        default_value: id of words that are not in the list; -1 counts as no value.
        num_oov_buckets: number of ids after those of the list, to which other words are hashed.

    Raises:
        ValueError: `key` is not a string, the list is empty, has a duplicate or another type than `dtype`,
            `num_oov_buckets` is negative, or both it and `default_value` are given.
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
    """`tf.feature_column.categorical_column_with_vocabulary_file`: ids that are line numbers in a file, from 0.

    Args:
        key: name of the feature, dense or sparse.  In a dense feature, "" and -1 mean "no value".
        vocabulary_file: path of a file with a word per line.
        vocabulary_size: number of lines to use; by default all, and this call reads the file to count them.
        num_oov_buckets: number of ids after those of the lines, to which other words are hashed.
        default_value: id of words that are not in the file; -1, the default, counts as no value.
        dtype: dtype of the feature: string or an integer.

    Raises:
        ValueError: `key` is not a string, no file is named, the file to count does not exist, `vocabulary_size` is
            below 1, `num_oov_buckets` is negative, or both it and `default_value` are given.
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
