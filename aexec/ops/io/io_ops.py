"""Files: checkpoints, readers, whole files."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.io import io_shapes as shapes

register_op(
    "FixedLengthRecordReader() -> reader_handle: Ref(string)",
    "header_bytes: int = 0", "record_bytes: int", "footer_bytes: int = 0", "hop_bytes: int = 0",
    "container: string = ''", "shared_name: string = ''", stateful=True,
    deprecated=(26, "Use FixedLengthRecordReaderV2"), shape_fn=common.old_handle,
)
register_op(
    "FixedLengthRecordReaderV2() -> reader_handle: resource",
    "header_bytes: int = 0", "record_bytes: int", "footer_bytes: int = 0", "hop_bytes: int = 0",
    "container: string = ''", "shared_name: string = ''", "encoding: string = ''", shape_fn=common.scalar,
)
register_op(
    "GenerateVocabRemapping(new_vocab_file: string, old_vocab_file: string) -> remapping: int64, num_present: int32",
    "new_vocab_offset: int >= 0", "num_new_vocab: int >= 0", "old_vocab_size: int >= -1 = -1",
    shape_fn=shapes.vocabulary_remapping,
)
register_op(
    "IdentityReader() -> reader_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", stateful=True, deprecated=(26, "Use IdentityReaderV2"),
    shape_fn=common.old_handle,
)
register_op(
    "IdentityReaderV2() -> reader_handle: resource",
    "container: string = ''", "shared_name: string = ''", shape_fn=common.scalar,
)
register_op(
    "LMDBReader() -> reader_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "LoadAndRemapMatrix(ckpt_path: string, old_tensor_name: string, row_remapping: int64, col_remapping: int64, "
    "initializing_values: float) -> output_matrix: float",
    "num_rows: int >= 0", "num_cols: int >= 1", "max_rows_in_memory: int = -1", stateful=True,
    shape_fn=shapes.remapped_matrix,
)
register_op("MatchingFiles(pattern: string) -> filenames: string", shape_fn=shapes.matching_files)
register_op(
    "MergeV2Checkpoints(checkpoint_prefixes: string, destination_prefix: string)",
    "delete_old_dirs: bool = true", "allow_missing_files: bool = false", stateful=True,
    shape_fn=shapes.merge_checkpoints,
)
register_op("ReadFile(filename: string) -> contents: string", shape_fn=common.scalars_in_and_out)
register_op(
    "ReaderNumRecordsProduced(reader_handle: Ref(string)) -> records_produced: int64",
    shape_fn=common.old_handle_in,
)
register_op(
    "ReaderNumRecordsProducedV2(reader_handle: resource) -> records_produced: int64",
    shape_fn=common.scalars_in_and_out,
)
register_op(
    "ReaderNumWorkUnitsCompleted(reader_handle: Ref(string)) -> units_completed: int64",
    shape_fn=common.old_handle_in,
)
register_op(
    "ReaderNumWorkUnitsCompletedV2(reader_handle: resource) -> units_completed: int64",
    shape_fn=common.scalars_in_and_out,
)
register_op(
    "ReaderRead(reader_handle: Ref(string), queue_handle: Ref(string)) -> key: string, value: string",
    shape_fn=common.old_handle_in,
)
register_op(
    "ReaderReadUpTo(reader_handle: Ref(string), queue_handle: Ref(string), num_records: int64) -> keys: string, "
    "values: string",
    shape_fn=shapes.old_read_up_to,
)
register_op(
    "ReaderReadUpToV2(reader_handle: resource, queue_handle: resource, num_records: int64) -> keys: string, values: "
    "string",
    shape_fn=shapes.read_up_to,
)
register_op(
    "ReaderReadV2(reader_handle: resource, queue_handle: resource) -> key: string, value: string",
    shape_fn=common.scalars_in_and_out,
)
register_op("ReaderReset(reader_handle: Ref(string))", shape_fn=common.old_handle_in)
register_op("ReaderResetV2(reader_handle: resource)", shape_fn=common.scalars_in_and_out)
register_op(
    "ReaderRestoreState(reader_handle: Ref(string), state: string)",
    shape_fn=common.old_handle_and_scalar,
)
register_op("ReaderRestoreStateV2(reader_handle: resource, state: string)", shape_fn=common.scalars_in_and_out)
register_op("ReaderSerializeState(reader_handle: Ref(string)) -> state: string", shape_fn=common.old_handle_in)
register_op("ReaderSerializeStateV2(reader_handle: resource) -> state: string", shape_fn=common.scalars_in_and_out)
register_op(
    "Restore(file_pattern: string, tensor_name: string) -> tensor: dt",
    "dt: type", "preferred_shard: int = -1", stateful=True, shape_fn=shapes.restore,
)
register_op(
    "RestoreSlice(file_pattern: string, tensor_name: string, shape_and_slice: string) -> tensor: dt",
    "dt: type", "preferred_shard: int = -1", stateful=True, shape_fn=shapes.restore_slice,
)
register_op(
    "RestoreV2(prefix: string, tensor_names: string, shape_and_slices: string) -> tensors: dtypes",
    "dtypes: list(type)", stateful=True, shape_fn=shapes.restore_v2,
)
register_op(
    "Save(filename: string, tensor_names: string, data: T)",
    "T: list(type)", stateful=True, shape_fn=shapes.save,
)
register_op(
    "SaveSlices(filename: string, tensor_names: string, shapes_and_slices: string, data: T)",
    "T: list(type)", stateful=True, shape_fn=shapes.save_slices,
)
register_op(
    "SaveV2(prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes)",
    "dtypes: list(type)", stateful=True, shape_fn=shapes.save_slices,
)
register_op(
    "ShardedFilename(basename: string, shard: int32, num_shards: int32) -> filename: string",
    shape_fn=common.scalars_in_and_out,
)
register_op(
    "ShardedFilespec(basename: string, num_shards: int32) -> filename: string",
    shape_fn=common.scalars_in_and_out,
)
register_op(
    "Skipgram() -> vocab_word: string, vocab_freq: int32, words_per_epoch: int64, current_epoch: int32, "
    "total_words_processed: int64, examples: int32, labels: int32",
    "filename: string", "batch_size: int", "window_size: int = 5", "min_count: int = 5", "subsample: float = 0.001",
    stateful=True,
    deprecated=(
        19, "Moving word2vec into tensorflow_models/tutorials and deprecating its ops here as a result",
    ),
    shape_fn=shapes.skipgram,
)
register_op(
    "TFRecordReader() -> reader_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", "compression_type: string = ''", stateful=True,
    deprecated=(26, "Use TFRecordReaderV2"), shape_fn=common.old_handle,
)
register_op(
    "TFRecordReaderV2() -> reader_handle: resource",
    "container: string = ''", "shared_name: string = ''", "compression_type: string = ''", shape_fn=common.scalar,
)
register_op(
    "TextLineReader() -> reader_handle: Ref(string)",
    "skip_header_lines: int = 0", "container: string = ''", "shared_name: string = ''", stateful=True,
    deprecated=(26, "Use TextLineReaderV2"), shape_fn=common.old_handle,
)
register_op(
    "TextLineReaderV2() -> reader_handle: resource",
    "skip_header_lines: int = 0", "container: string = ''", "shared_name: string = ''", shape_fn=common.scalar,
)
register_op(
    "WholeFileReader() -> reader_handle: Ref(string)",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "WholeFileReaderV2() -> reader_handle: resource",
    "container: string = ''", "shared_name: string = ''", shape_fn=common.scalar,
)
register_op("WriteFile(filename: string, contents: string)", stateful=True, shape_fn=common.scalars_in_and_out)
