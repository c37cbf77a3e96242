"""Records to tensors: Example protos, CSV, raw bytes, JSON, any proto."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.parsing import parsing_shapes as shapes
from aexec.ops.parsing import sequence_example_shapes as sequence_shapes

register_op(
    "DecodeCSV(records: string, record_defaults: OUT_TYPE) -> output: OUT_TYPE",
    "OUT_TYPE: list({float, double, int32, int64, string})", "field_delim: string = ','",
    "use_quote_delim: bool = true", "na_value: string = ''", "select_cols: list(int) = []", shape_fn=shapes.decode_csv,
)
register_op(
    "DecodeCompressed(bytes: string) -> output: string",
    "compression_type: string = ''", shape_fn=common.unchanged_shape,
)
register_op("DecodeJSONExample(json_examples: string) -> binary_examples: string", shape_fn=common.unchanged_shape)
register_op(
    "DecodePaddedRaw(input_bytes: string, fixed_length: int32) -> output: out_type",
    "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}", "little_endian: bool = true",
    shape_fn=shapes.decode_padded_raw,
)
register_op(
    "DecodeProtoV2(bytes: string) -> sizes: int32, values: output_types",
    "message_type: string", "field_names: list(string)", "output_types: list(type) >= 0",
    "descriptor_source: string = 'local://'", "message_format: string = 'binary'", "sanitize: bool = false",
    shape_fn=shapes.decode_proto,
)
register_op(
    "DecodeRaw(bytes: string) -> output: out_type",
    "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, bfloat16}",
    "little_endian: bool = true", shape_fn=shapes.decode_raw,
)
register_op(
    "EncodeProto(sizes: int32, values: Tinput_types) -> bytes: string",
    "field_names: list(string)", "message_type: string", "descriptor_source: string = 'local://'",
    "Tinput_types: list(type)", shape_fn=shapes.encode_proto,
)
register_op(
    "ParseExample(serialized: string, names: string, sparse_keys: Nsparse * string, dense_keys: Ndense * string, "
    "dense_defaults: Tdense) -> sparse_indices: Nsparse * int64, sparse_values: sparse_types, sparse_shapes: "
    "Nsparse * int64, dense_values: Tdense",
    "Nsparse: int >= 0", "Ndense: int >= 0", "sparse_types: list({float, int64, string}) >= 0",
    "Tdense: list({float, int64, string}) >= 0", "dense_shapes: list(shape) >= 0", shape_fn=shapes.parse_example,
)
register_op(
    "ParseExampleV2(serialized: string, names: string, sparse_keys: string, dense_keys: string, ragged_keys: "
    "string, dense_defaults: Tdense) -> sparse_indices: num_sparse * int64, sparse_values: sparse_types, "
    "sparse_shapes: num_sparse * int64, dense_values: Tdense, ragged_values: ragged_value_types, ragged_row_splits: "
    "ragged_split_types",
    "Tdense: list({float, int64, string}) >= 0", "num_sparse: int >= 0",
    "sparse_types: list({float, int64, string}) >= 0", "ragged_value_types: list({float, int64, string}) >= 0",
    "ragged_split_types: list({int32, int64}) >= 0", "dense_shapes: list(shape) >= 0", shape_fn=shapes.parse_example_v2,
)
register_op(
    "ParseSequenceExample(serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense) -> "
    "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: context_sparse_types, "
    "context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: Tcontext_dense, "
    "feature_list_sparse_indices: Nfeature_list_sparse * int64, feature_list_sparse_values: "
    "feature_list_sparse_types, feature_list_sparse_shapes: Nfeature_list_sparse * int64, "
    "feature_list_dense_values: feature_list_dense_types, feature_list_dense_lengths: Nfeature_list_dense * int64",
    "feature_list_dense_missing_assumed_empty: list(string) >= 0", "context_sparse_keys: list(string) >= 0",
    "context_dense_keys: list(string) >= 0", "feature_list_sparse_keys: list(string) >= 0",
    "feature_list_dense_keys: list(string) >= 0", "Ncontext_sparse: int >= 0 = 0", "Ncontext_dense: int >= 0 = 0",
    "Nfeature_list_sparse: int >= 0 = 0", "Nfeature_list_dense: int >= 0 = 0",
    "context_sparse_types: list({float, int64, string}) >= 0 = []",
    "Tcontext_dense: list({float, int64, string}) >= 0 = []",
    "feature_list_dense_types: list({float, int64, string}) >= 0 = []", "context_dense_shapes: list(shape) >= 0 = []",
    "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
    "feature_list_dense_shapes: list(shape) >= 0 = []",
    shape_fn=sequence_shapes.parse_sequence_example,
)
register_op(
    "ParseSequenceExampleV2(serialized: string, debug_name: string, context_sparse_keys: string, "
    "context_dense_keys: string, context_ragged_keys: string, feature_list_sparse_keys: string, "
    "feature_list_dense_keys: string, feature_list_ragged_keys: string, feature_list_dense_missing_assumed_empty: "
    "bool, context_dense_defaults: Tcontext_dense) -> context_sparse_indices: Ncontext_sparse * int64, "
    "context_sparse_values: context_sparse_types, context_sparse_shapes: Ncontext_sparse * int64, "
    "context_dense_values: Tcontext_dense, context_ragged_values: context_ragged_value_types, "
    "context_ragged_row_splits: context_ragged_split_types, feature_list_sparse_indices: Nfeature_list_sparse * "
    "int64, feature_list_sparse_values: feature_list_sparse_types, feature_list_sparse_shapes: Nfeature_list_sparse "
    "* int64, feature_list_dense_values: feature_list_dense_types, feature_list_dense_lengths: Nfeature_list_dense "
    "* int64, feature_list_ragged_values: feature_list_ragged_value_types, feature_list_ragged_outer_splits: "
    "feature_list_ragged_split_types, feature_list_ragged_inner_splits: feature_list_ragged_split_types",
    "Ncontext_sparse: int >= 0 = 0", "Tcontext_dense: list({float, int64, string}) >= 0 = []",
    "context_sparse_types: list({float, int64, string}) >= 0 = []",
    "context_ragged_value_types: list({float, int64, string}) >= 0 = []",
    "context_ragged_split_types: list({int32, int64}) >= 0 = []", "context_dense_shapes: list(shape) >= 0 = []",
    "Nfeature_list_sparse: int >= 0 = 0", "Nfeature_list_dense: int >= 0 = 0",
    "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
    "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
    "feature_list_ragged_value_types: list({float, int64, string}) >= 0 = []",
    "feature_list_ragged_split_types: list({int32, int64}) >= 0 = []",
    "feature_list_dense_shapes: list(shape) >= 0 = []",
    shape_fn=sequence_shapes.parse_sequence_example_v2,
)
register_op(
    "ParseSingleExample(serialized: string, dense_defaults: Tdense) -> sparse_indices: num_sparse * int64, "
    "sparse_values: sparse_types, sparse_shapes: num_sparse * int64, dense_values: Tdense",
    "num_sparse: int >= 0", "sparse_keys: list(string) >= 0", "dense_keys: list(string) >= 0",
    "sparse_types: list({float, int64, string}) >= 0", "Tdense: list({float, int64, string}) >= 0",
    "dense_shapes: list(shape) >= 0", shape_fn=shapes.parse_single_example,
)
register_op(
    "ParseSingleSequenceExample(serialized: string, feature_list_dense_missing_assumed_empty: string, "
    "context_sparse_keys: Ncontext_sparse * string, context_dense_keys: Ncontext_dense * string, "
    "feature_list_sparse_keys: Nfeature_list_sparse * string, feature_list_dense_keys: Nfeature_list_dense * "
    "string, context_dense_defaults: Tcontext_dense, debug_name: string) -> context_sparse_indices: Ncontext_sparse "
    "* int64, context_sparse_values: context_sparse_types, context_sparse_shapes: Ncontext_sparse * int64, "
    "context_dense_values: Tcontext_dense, feature_list_sparse_indices: Nfeature_list_sparse * int64, "
    "feature_list_sparse_values: feature_list_sparse_types, feature_list_sparse_shapes: Nfeature_list_sparse * "
    "int64, feature_list_dense_values: feature_list_dense_types",
    "Ncontext_sparse: int >= 0 = 0", "Ncontext_dense: int >= 0 = 0", "Nfeature_list_sparse: int >= 0 = 0",
    "Nfeature_list_dense: int >= 0 = 0", "context_sparse_types: list({float, int64, string}) >= 0 = []",
    "Tcontext_dense: list({float, int64, string}) >= 0 = []",
    "feature_list_dense_types: list({float, int64, string}) >= 0 = []", "context_dense_shapes: list(shape) >= 0 = []",
    "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
    "feature_list_dense_shapes: list(shape) >= 0 = []",
    shape_fn=sequence_shapes.parse_single_sequence_example,
)
register_op("ParseTensor(serialized: string) -> output: out_type", "out_type: type", shape_fn=shapes.parse_tensor)
register_op("SerializeTensor(tensor: T) -> serialized: string", "T: type", shape_fn=common.scalar)
register_op(
    "StringToNumber(string_tensor: string) -> output: out_type",
    "out_type: {float, double, int32, int64, uint32, uint64} = float", shape_fn=common.unchanged_shape,
)
