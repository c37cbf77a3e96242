"""Lookup tables: making, filling and using them.  Next to read: `aexec/resources/lookup_table.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.io.files import text_path
from aexec.kernels.common.files import blocking, scalar_of
from aexec.kernels.common.handles import anonymous, find_resource, names_of, shared
from aexec.kernels.lookup.vocabulary import TextFileFormat
from aexec.resources.lookup_table import DenseHashTable, HashTable, LookupTable, MutableHashTable

# Nanoseconds per key.
_COST = 150.0

_SCALARS = (dtypes.float32, dtypes.float64, dtypes.int32)
# The types of values for each type of keys.
_HASH_TYPES = {
    dtypes.string: (*_SCALARS, dtypes.bool_, dtypes.int64, dtypes.string),
    dtypes.int64: (*_SCALARS, dtypes.int64, dtypes.string),
    dtypes.int32: (*_SCALARS, dtypes.string),
}
_TENSOR_TYPES = {
    dtypes.string: (*_SCALARS, dtypes.bool_, dtypes.int64),
    dtypes.int64: (*_SCALARS, dtypes.int64, dtypes.string),
    dtypes.int32: _SCALARS,
}
_MUTABLE_TYPES = {**_TENSOR_TYPES, dtypes.int64: (*_SCALARS, dtypes.int64, dtypes.string, dtypes.variant)}
_DENSE_TYPES = {
    dtypes.string: (*_SCALARS, dtypes.bool_, dtypes.int64, dtypes.resource),
    dtypes.int64: (*_SCALARS, dtypes.bool_, dtypes.int64, dtypes.variant),
    dtypes.int32: _SCALARS,
}

# Returns a function that makes the table from the op's inputs.
Maker = Callable[[OpKernelConstruction], Callable[..., LookupTable]]


def _hash_table(c: OpKernelConstruction) -> Callable[..., LookupTable]:
    key, value = c.attr("key_dtype"), c.attr("value_dtype")
    return lambda: HashTable(key, value)


def _mutable_table(c: OpKernelConstruction) -> Callable[..., LookupTable]:
    key, value = c.attr("key_dtype"), c.attr("value_dtype")
    return lambda: MutableHashTable(key, value)


def _table_of_tensors(c: OpKernelConstruction) -> Callable[..., LookupTable]:
    key, value, shape = c.attr("key_dtype"), c.attr("value_dtype"), c.attr("value_shape")
    if not shape.is_fully_defined:
        raise errors.InvalidArgumentError(f"Shape {shape} is not fully defined")
    if len(shape.as_tuple()) != 1:
        raise errors.InvalidArgumentError(f"Default value must be a vector, got shape {shape}")
    return lambda: MutableHashTable(key, value, value_shape=shape.as_tuple())


def _dense_table(c: OpKernelConstruction) -> Callable[..., LookupTable]:
    key, value, shape = c.attr("key_dtype"), c.attr("value_dtype"), c.attr("value_shape")
    if not shape.is_fully_defined:
        raise errors.InvalidArgumentError(f"Shape {shape} is not fully defined")
    if len(shape.as_tuple()) > 1:
        raise errors.InvalidArgumentError(f"Empty value must be a scalar or a vector, got shape {shape}")
    load, buckets = c.attr("max_load_factor"), c.attr("initial_num_buckets")
    if not 0 < load < 1:
        raise errors.InvalidArgumentError(f"max_load_factor must be between 0 and 1, got: {load:g}")
    if buckets < 4 or buckets & (buckets - 1):
        raise errors.InvalidArgumentError(f"Number of buckets must be at least 4 and a power of 2, got: {buckets}")
    return lambda *reserved: DenseHashTable(key, value, shape.as_tuple(), *reserved)


def _shared(maker: Maker) -> Builder:
    """The builder for tables that are shared by name."""

    def build(c: OpKernelConstruction) -> Compute:
        key, value = c.attr("key_dtype"), c.attr("value_dtype")

        def agree(table: LookupTable) -> None:
            if table.key_dtype is not key or table.value_dtype is not value:
                raise errors.InvalidArgumentError(
                    f"Conflicting key/value dtypes {key}->{value} with {table.key_dtype}-{table.value_dtype} "
                    f"for table {c.text('shared_name') or c.name}"
                )

        return shared(c, LookupTable, maker(c), agree)

    return build


def _anonymous(maker: Maker) -> Builder:
    return lambda c: anonymous(c, LookupTable, maker(c))


_KINDS = (
    ("HashTable", _hash_table, _HASH_TYPES),
    ("MutableHashTable", _mutable_table, _MUTABLE_TYPES),
    ("MutableHashTableOfTensors", _table_of_tensors, _TENSOR_TYPES),
    ("MutableDenseHashTable", _dense_table, _DENSE_TYPES),
)
for _name, _maker, _types in _KINDS:
    for _key, _values in _types.items():
        kernel(_name, f"{_name}V2", cost=0, key_dtype=[_key], value_dtype=_values)(_shared(_maker))
        kernel(f"Anonymous{_name}", cost=0, key_dtype=[_key], value_dtype=_values)(_anonymous(_maker))


def _find(
    c: OpKernelConstruction, context: OpKernelContext, handle: Any, *, gives: bool, takes: str = ""
) -> LookupTable:
    """The table, which must have the types of the node.

    Args:
        gives: the node's outputs are values for keys.
        takes: the kinds of its inputs after the handle: "kv", "k" or "".
    """
    table = find_resource(context, handle, LookupTable)
    kinds = {"k": table.key_dtype, "v": table.value_dtype}
    outputs = [table.value_dtype] if gives else []
    c.match_signature([c.input_types[0], *(kinds[letter] for letter in takes)], outputs)
    return table


@kernel("LookupTableFind", "LookupTableFindV2", cost=_COST)
def lookup_table_find(c: OpKernelConstruction) -> Compute:
    c.need_context()
    c.may_be_abandoned = True  # nothing changes

    def compute(context: OpKernelContext, handle: Any, keys: Any, default: Any) -> Any:
        return _find(c, context, handle, takes="kv", gives=True).find(keys, default)

    return compute


@kernel("LookupTableInsert", "LookupTableInsertV2", cost=_COST)
def lookup_table_insert(c: OpKernelConstruction) -> Compute:
    c.need_context()
    c.may_be_abandoned = True  # all are inserted, or none

    def compute(context: OpKernelContext, handle: Any, keys: Any, values: Any) -> None:
        _find(c, context, handle, takes="kv", gives=False).insert(keys, values)

    return compute


@kernel("LookupTableRemoveV2", cost=_COST)
def lookup_table_remove(c: OpKernelConstruction) -> Compute:
    c.need_context()
    c.may_be_abandoned = True  # all are removed, or none

    def compute(context: OpKernelContext, handle: Any, keys: Any) -> None:
        _find(c, context, handle, takes="k", gives=False).remove(keys)

    return compute


@kernel("LookupTableSize", "LookupTableSizeV2", cost=0)
def lookup_table_size(c: OpKernelConstruction) -> Compute:
    out = c.output_types[0].np.type
    c.need_context()
    return lambda context, handle: out(len(find_resource(context, handle, LookupTable)))


@kernel("LookupTableExport", "LookupTableExportV2", cost=0)
def lookup_table_export(c: OpKernelConstruction) -> Compute:
    c.need_context()
    c.may_be_abandoned = True  # nothing changes

    def compute(context: OpKernelContext, handle: Any) -> Any:
        table = find_resource(context, handle, LookupTable)
        c.match_signature(c.input_types, [table.key_dtype, table.value_dtype])
        return table.export()

    return compute


@kernel("LookupTableImport", "LookupTableImportV2", cost=_COST)
def lookup_table_import(c: OpKernelConstruction) -> Compute:
    c.need_context()
    c.may_be_abandoned = True  # all are inserted, or none

    def compute(context: OpKernelContext, handle: Any, keys: Any, values: Any) -> None:
        _find(c, context, handle, takes="kv", gives=False).replace(keys, values)

    return compute


def _initializable(table: LookupTable, handle: Any) -> HashTable:
    if not isinstance(table, HashTable):
        raise errors.InvalidArgumentError(f"Table {' '.join(names_of(handle))} is not initializable")
    return table


@kernel("InitializeTable", "InitializeTableV2", cost=_COST)
def initialize_table(c: OpKernelConstruction) -> Compute:
    c.need_context()
    c.may_be_abandoned = True  # all are inserted, or none

    def compute(context: OpKernelContext, handle: Any, keys: Any, values: Any) -> None:
        table = _find(c, context, handle, takes="kv", gives=False)
        _initializable(table, handle).initialize(keys, values)

    return compute


@kernel("InitializeTableFromTextFile", "InitializeTableFromTextFileV2", cost=blocking)
def initialize_table_from_text_file(c: OpKernelConstruction) -> Compute:
    attrs = ("key_index", "value_index", "vocab_size", "delimiter", "offset")
    file_format = TextFileFormat(**{name: c.attr(name) for name in attrs})
    file_format.check()
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, filename: Any) -> None:
        path = text_path(scalar_of(filename, "filename should be a single string, but got"))
        table = _initializable(find_resource(context, handle, LookupTable), handle)
        table.initialize(*file_format.read(path, table.key_dtype, table.value_dtype))

    return compute
