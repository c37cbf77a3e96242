"""`tf.lookup` and `tf.contrib.lookup`: tables that map keys to values in a run.

`tf.tables_initializer()` fills the tables.  Next to read: `aexec/kernels/data_flow/`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph

__all__ = [
    "HashTable",
    "KeyValueTensorInitializer",
    "MutableHashTable",
    "StaticHashTable",
    "StaticVocabularyTable",
    "TextFileIndex",
    "TextFileInitializer",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
]


class TextFileIndex:
    """`tf.lookup.TextFileIndex`: stands for the whole line or the line number, in place of a column's index."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class KeyValueTensorInitializer:
    """`tf.lookup.KeyValueTensorInitializer`: initialises a table from vectors of keys and values of the same size."""

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: str | None = None
    ) -> None:
        self._keys = convert_to_tensor(keys, None if key_dtype is None else dtypes.as_dtype(key_dtype), "keys")
        wanted = None if value_dtype is None else dtypes.as_dtype(value_dtype)
        self._values = convert_to_tensor(values, wanted, "values")
        self.key_dtype = self._keys.dtype.base
        self.value_dtype = self._values.dtype.base

    def initialize(self, table: Any) -> Node:
        """The operation that fills a table."""
        made = ops.initialize_table_v2(table.resource_handle, self._keys, self._values)
        require_graph().collections.add(GraphKeys.TABLE_INITIALIZERS, made)
        return made


class TextFileInitializer:
    """`tf.lookup.TextFileInitializer`: initialises a table from columns, lines or line numbers of a text file."""

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        self.key_dtype = dtypes.as_dtype(key_dtype)
        self.value_dtype = dtypes.as_dtype(value_dtype)
        self._filename = filename
        self._settings: dict[str, Any] = {
            "key_index": key_index,
            "value_index": value_index,
            "vocab_size": -1 if vocab_size is None else vocab_size,
            "delimiter": delimiter,
            "offset": value_index_offset,
        }

    def initialize(self, table: Any) -> Node:
        """The operation that fills a table."""
        filename = convert_to_tensor(self._filename, dtypes.string, "filename")
        made = ops.initialize_table_from_text_file_v2(table.resource_handle, filename, **self._settings)
        require_graph().collections.add(GraphKeys.TABLE_INITIALIZERS, made)
        require_graph().collections.add(GraphKeys.ASSET_FILEPATHS, filename)
        return made


class _Table:
    """The base of immutable and mutable tables.

    Attributes:
        key_dtype, value_dtype: dtypes of keys and values.
        default_value: value of keys that are not in the table.
        resource_handle: the table's handle.
    """

    def __init__(self, handle: Tensor, key_dtype: Any, value_dtype: Any, default_value: Any) -> None:
        self.resource_handle = handle
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.default_value = convert_to_tensor(default_value, value_dtype, "default_value")

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.resource_handle.op.name)

    def size(self, name: str | None = None) -> Tensor:
        """The number of keys, int64."""
        return ops.lookup_table_size_v2(self.resource_handle, name=name)

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """All keys and their values, two vectors."""
        found = ops.lookup_table_export_v2(self.resource_handle, self.key_dtype, self.value_dtype, name=name)
        return found[0], found[1]

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Look up keys; return values of the same shape, as a SparseTensor if the keys are one.

        Raises:
            TypeError: the keys have another dtype than `key_dtype`.
        """
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, self.lookup(keys.values, name), keys.dense_shape)
        given = convert_to_tensor(keys, None if isinstance(keys, Tensor) else self.key_dtype, "keys")
        if given.dtype.base is not self.key_dtype:
            raise errors.InvalidTypeError(f"Dtype of argument `keys` must be {self.key_dtype}, received: {given.dtype}")
        return ops.lookup_table_find_v2(self.resource_handle, given, self.default_value, name=name)

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


class StaticHashTable(_Table):
    """`tf.lookup.StaticHashTable`: filled once.

    Attributes:
        initializer: the operation that fills it, also in `tf.tables_initializer()`.
    """

    def __init__(
        self, initializer: Any, default_value: Any, name: str | None = None, experimental_is_anonymous: bool = False
    ) -> None:
        kinds = initializer.key_dtype, initializer.value_dtype
        handle = ops.hash_table_v2(*kinds, use_node_name_sharing=True, name=name or "hash_table")
        super().__init__(handle, *kinds, default_value)
        with name_scope(f"{self.name.rpartition('/')[2]}_init"):
            self.initializer: Node = initializer.initialize(self)

    @property
    def init(self) -> Node:
        """The operation that fills it."""
        return self.initializer


class HashTable(StaticHashTable):
    """`tf.contrib.lookup.HashTable`."""

    def __init__(self, initializer: Any, default_value: Any, shared_name: Any = None, name: str | None = None) -> None:
        super().__init__(initializer, default_value, name)


class MutableHashTable(_Table):
    """`tf.lookup.experimental.MutableHashTable`: changed by operations."""

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        shared_name: Any = None,
        name: str = "MutableHashTable",
        checkpoint: bool = False,
    ) -> None:
        kinds = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)
        handle = ops.mutable_hash_table_v2(*kinds, use_node_name_sharing=True, name=name)
        super().__init__(handle, *kinds, default_value)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Node:
        """An operation that sets values of keys."""
        given = convert_to_tensor(keys, self.key_dtype), convert_to_tensor(values, self.value_dtype)
        return ops.lookup_table_insert_v2(self.resource_handle, *given, name=name)

    def remove(self, keys: Any, name: str | None = None) -> Node:
        """An operation that removes keys."""
        return ops.lookup_table_remove_v2(self.resource_handle, convert_to_tensor(keys, self.key_dtype), name=name)


class StaticVocabularyTable:
    """`tf.lookup.StaticVocabularyTable`: maps words to ids; unknown words are hashed to buckets after the ids.

    Args:
        initializer: an initializer from strings or int64 to int64; None for buckets only.
        num_oov_buckets: the number of buckets, positive.
    """

    def __init__(
        self,
        initializer: Any,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        if num_oov_buckets <= 0:
            raise errors.InvalidValueError("oov_buckets must be > 0.")
        self._buckets = num_oov_buckets
        self._table = None if initializer is None else StaticHashTable(initializer, -1, name)
        kind = dtypes.string if self._table is None else self._table.key_dtype
        self.key_dtype = kind if lookup_key_dtype is None else dtypes.as_dtype(lookup_key_dtype)
        self.value_dtype = dtypes.int64
        self.name = "" if self._table is None else self._table.name
        self.resource_handle = None if self._table is None else self._table.resource_handle
        self.initializer = ops.no_op() if self._table is None else self._table.initializer

    @property
    def init(self) -> Node:
        """The operation that fills it."""
        return self.initializer

    def size(self, name: str | None = None) -> Tensor:
        """The number of words and buckets, int64."""
        buckets = convert_to_tensor(self._buckets, dtypes.int64)
        return buckets if self._table is None else self._table.size() + buckets

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The id of each word, int64, of the same shape; a SparseTensor for a SparseTensor."""
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, self.lookup(keys.values, name), keys.dense_shape)
        with name_scope(name or "string_to_index_Lookup"):
            given = convert_to_tensor(keys, None if isinstance(keys, Tensor) else self.key_dtype, "keys")
            words = given if given.dtype.base is dtypes.string else ops.as_string(given)
            bucket = ops.string_to_hash_bucket_fast(words, self._buckets)
            if self._table is None:
                return bucket
            found = self._table.lookup(ops.cast(given, DstT=self._table.key_dtype))
            is_there = ops.not_equal(found, self._table.default_value)
            return ops.select_v2(is_there, found, bucket + self._table.size())

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


# Functions of `tf.contrib.lookup`


class _Hasher(NamedTuple):
    """Identifies the hash function `string_to_hash_bucket_fast` as an argument."""

    hasher: str
    key: Any


FastHashSpec = _Hasher("fasthash", None)


def _numbered(initializer: Any, buckets: int, default_value: int, hasher: Any, name: str | None) -> Any:
    if hasher is not None and hasher.hasher != "fasthash":
        raise errors.UnsupportedError(f"hasher_spec={hasher!r} is not supported")
    if buckets < 0:
        raise errors.InvalidValueError(f"num_oov_buckets must be greater or equal than 0, got {buckets}.")
    if buckets:
        return StaticVocabularyTable(initializer, buckets, name=name)
    return StaticHashTable(initializer, default_value, name)


def index_table_from_tensor(
    mapping: Any = None,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: Any = FastHashSpec,
    dtype: Any = dtypes.string,
    name: str | None = None,
    vocabulary_list: Any = None,
) -> Any:
    """`tf.contrib.lookup.index_table_from_tensor`: a table from the keys of a list to their positions."""
    given = mapping if vocabulary_list is None else vocabulary_list
    if given is None:
        raise errors.InvalidValueError("mapping must be specified.")
    kind = dtypes.as_dtype(dtype)
    keys = convert_to_tensor(given, kind, "keys")
    if kind.is_integer and kind is not dtypes.int64:
        keys = ops.cast(keys, DstT=dtypes.int64)
    numbers = ops.cast(ops.range(0, ops.size(keys), 1), DstT=dtypes.int64)
    return _numbered(KeyValueTensorInitializer(keys, numbers), num_oov_buckets, default_value, hasher_spec, name)


def index_table_from_file(
    vocabulary_file: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: Any = FastHashSpec,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
    key_column_index: int = TextFileIndex.WHOLE_LINE,
    value_column_index: int = TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> Any:
    """`tf.contrib.lookup.index_table_from_file`: a table from the lines of a file to their line numbers, from 0."""
    if vocabulary_file is None or vocabulary_file == "":
        raise errors.InvalidValueError("vocabulary_file must be specified and must not be empty.")
    columns = (key_dtype, key_column_index, dtypes.int64, value_column_index, vocab_size, delimiter)
    return _numbered(TextFileInitializer(vocabulary_file, *columns), num_oov_buckets, default_value, hasher_spec, name)


def index_to_string_table_from_tensor(mapping: Any, default_value: str = "UNK", name: str | None = None) -> Any:
    """`tf.contrib.lookup.index_to_string_table_from_tensor`: a table from positions in a list to its strings."""
    values = convert_to_tensor(mapping, dtypes.string, "mapping")
    numbers = ops.cast(ops.range(0, ops.size(values), 1), DstT=dtypes.int64)
    return StaticHashTable(KeyValueTensorInitializer(numbers, values), default_value, name)


def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: int | None = None,
    default_value: str = "UNK",
    name: str | None = None,
    key_column_index: int = TextFileIndex.LINE_NUMBER,
    value_column_index: int = TextFileIndex.WHOLE_LINE,
    delimiter: str = "\t",
) -> Any:
    """`tf.contrib.lookup.index_to_string_table_from_file`: a table from line numbers of a file to its lines."""
    columns = (dtypes.int64, key_column_index, dtypes.string, value_column_index, vocab_size, delimiter)
    return StaticHashTable(TextFileInitializer(vocabulary_file, *columns), default_value, name)


class _Experimental:
    MutableHashTable = MutableHashTable


experimental = _Experimental

__getattr__, __dir__ = namespace(__name__, {}, {"IdTableWithHashBuckets": "use tf.lookup.StaticVocabularyTable"})
