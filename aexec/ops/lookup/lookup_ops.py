"""Lookup tables and their initialisation."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.lookup import lookup_shapes as shapes

register_op(
    "AnonymousHashTable() -> table_handle: resource",
    "key_dtype: type", "value_dtype: type", shape_fn=common.scalar,
)
register_op(
    "AnonymousMutableDenseHashTable(empty_key: key_dtype, deleted_key: key_dtype) -> table_handle: resource",
    "key_dtype: type", "value_dtype: type", "value_shape: shape = {}", "initial_num_buckets: int = 131072",
    "max_load_factor: float = 0.8", shape_fn=shapes.mutable_dense_table,
)
register_op(
    "AnonymousMutableHashTable() -> table_handle: resource",
    "key_dtype: type", "value_dtype: type", shape_fn=shapes.mutable_table,
)
register_op(
    "AnonymousMutableHashTableOfTensors() -> table_handle: resource",
    "key_dtype: type", "value_dtype: type", "value_shape: shape = {}", shape_fn=shapes.mutable_table_of_tensors,
)
register_op(
    "HashTable() -> table_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "HashTableV2() -> table_handle: resource",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", shape_fn=common.scalar,
)
register_op(
    "InitializeTable(table_handle: Ref(string), keys: Tkey, values: Tval)",
    "Tkey: type", "Tval: type", shape_fn=shapes.old_table_initialize,
)
register_op(
    "InitializeTableFromTextFile(table_handle: Ref(string), filename: string)",
    "key_index: int >= -2", "value_index: int >= -2", "vocab_size: int >= -1 = -1", "delimiter: string = '\\t'",
    "offset: int = 0", shape_fn=shapes.old_table_initialize_from_file,
)
register_op(
    "InitializeTableFromTextFileV2(table_handle: resource, filename: string)",
    "key_index: int >= -2", "value_index: int >= -2", "vocab_size: int >= -1 = -1", "delimiter: string = '\\t'",
    "offset: int = 0", shape_fn=shapes.table_initialize_from_file,
)
register_op(
    "InitializeTableV2(table_handle: resource, keys: Tkey, values: Tval)",
    "Tkey: type", "Tval: type", shape_fn=shapes.table_initialize,
)
register_op(
    "LookupTableExport(table_handle: Ref(string)) -> keys: Tkeys, values: Tvalues",
    "Tkeys: type", "Tvalues: type", shape_fn=shapes.old_table_export,
)
register_op(
    "LookupTableExportV2(table_handle: resource) -> keys: Tkeys, values: Tvalues",
    "Tkeys: type", "Tvalues: type", shape_fn=shapes.table_export,
)
register_op(
    "LookupTableFind(table_handle: Ref(string), keys: Tin, default_value: Tout) -> values: Tout",
    "Tin: type", "Tout: type", shape_fn=shapes.old_table_find,
)
register_op(
    "LookupTableFindV2(table_handle: resource, keys: Tin, default_value: Tout) -> values: Tout",
    "Tin: type", "Tout: type", shape_fn=shapes.table_find,
)
register_op(
    "LookupTableImport(table_handle: Ref(string), keys: Tin, values: Tout)",
    "Tin: type", "Tout: type", shape_fn=common.old_handle_in,
)
register_op(
    "LookupTableImportV2(table_handle: resource, keys: Tin, values: Tout)",
    "Tin: type", "Tout: type", shape_fn=shapes.table_in,
)
register_op(
    "LookupTableInsert(table_handle: Ref(string), keys: Tin, values: Tout)",
    "Tin: type", "Tout: type", shape_fn=common.old_handle_in,
)
register_op(
    "LookupTableInsertV2(table_handle: resource, keys: Tin, values: Tout)",
    "Tin: type", "Tout: type", shape_fn=shapes.table_in,
)
register_op("LookupTableRemoveV2(table_handle: resource, keys: Tin)", "Tin: type", shape_fn=shapes.table_in)
register_op("LookupTableSize(table_handle: Ref(string)) -> size: int64", shape_fn=common.old_handle_in)
register_op("LookupTableSizeV2(table_handle: resource) -> size: int64", shape_fn=shapes.table_size)
register_op(
    "MutableDenseHashTable(empty_key: key_dtype) -> table_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", "value_shape: shape = {}", "initial_num_buckets: int = 131072", "max_load_factor: float = 0.8",
    stateful=True, shape_fn=common.old_handle,
)
register_op(
    "MutableDenseHashTableV2(empty_key: key_dtype, deleted_key: key_dtype) -> table_handle: resource",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", "value_shape: shape = {}", "initial_num_buckets: int = 131072", "max_load_factor: float = 0.8",
    shape_fn=shapes.mutable_dense_table,
)
register_op(
    "MutableHashTable() -> table_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "MutableHashTableOfTensors() -> table_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", "value_shape: shape = {}", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "MutableHashTableOfTensorsV2() -> table_handle: resource",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", "value_shape: shape = {}", shape_fn=shapes.mutable_table_of_tensors,
)
register_op(
    "MutableHashTableV2() -> table_handle: resource",
    "container: string = ''", "shared_name: string = ''", "use_node_name_sharing: bool = false", "key_dtype: type",
    "value_dtype: type", shape_fn=shapes.mutable_table,
)
