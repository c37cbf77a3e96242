"""Datasets under the names that they had while they were experimental."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.datasets import dataset_shapes as shapes

register_op(
    "ExperimentalAssertNextDataset(input_dataset: variant, transformations: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalAutoShardDataset(input_dataset: variant, num_workers: int64, index: int64) -> handle: variant",
    "auto_shard_policy: int = 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op(
    "ExperimentalBytesProducedStatsDataset(input_dataset: variant, tag: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalCSVDataset(filenames: string, compression_type: string, buffer_size: int64, header: bool, "
    "field_delim: string, use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: "
    "output_types) -> handle: variant",
    "output_types: list({float, double, int32, int64, string})", "output_shapes: list(shape) >= 1", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "ExperimentalChooseFastestDataset(input_datasets: N * variant) -> handle: variant",
    "N: int >= 2", "num_experiments: int", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op("ExperimentalDatasetCardinality(input_dataset: variant) -> cardinality: int64", shape_fn=common.scalar)
register_op(
    "ExperimentalDatasetToTFRecord(input_dataset: variant, filename: string, compression_type: string)",
    stateful=True, shape_fn=shapes.no_outputs,
)
register_op(
    "ExperimentalDenseToSparseBatchDataset(input_dataset: variant, batch_size: int64, row_shape: int64) -> "
    "handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalDirectedInterleaveDataset(selector_input_dataset: variant, data_input_datasets: N * variant) "
    "-> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalGroupByReducerDataset(input_dataset: variant, key_func_other_arguments: "
    "Tkey_func_other_arguments, init_func_other_arguments: Tinit_func_other_arguments, "
    "reduce_func_other_arguments: Treduce_func_other_arguments, finalize_func_other_arguments: "
    "Tfinalize_func_other_arguments) -> handle: variant",
    "key_func: func", "init_func: func", "reduce_func: func", "finalize_func: func",
    "Tkey_func_other_arguments: list(type) >= 0", "Tinit_func_other_arguments: list(type) >= 0",
    "Treduce_func_other_arguments: list(type) >= 0", "Tfinalize_func_other_arguments: list(type) >= 0",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalGroupByWindowDataset(input_dataset: variant, key_func_other_arguments: "
    "Tkey_func_other_arguments, reduce_func_other_arguments: Treduce_func_other_arguments, "
    "window_size_func_other_arguments: Twindow_size_func_other_arguments) -> handle: variant",
    "key_func: func", "reduce_func: func", "window_size_func: func", "Tkey_func_other_arguments: list(type) >= 0",
    "Treduce_func_other_arguments: list(type) >= 0", "Twindow_size_func_other_arguments: list(type) >= 0",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalIgnoreErrorsDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "log_warning: bool = false",
    shape_fn=common.scalar,
)
register_op(
    "ExperimentalIteratorGetDevice(resource: resource) -> device: string",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalLMDBDataset(filenames: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalLatencyStatsDataset(input_dataset: variant, tag: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalMapAndBatchDataset(input_dataset: variant, other_arguments: Targuments, batch_size: int64, "
    "num_parallel_calls: int64, drop_remainder: bool) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "preserve_cardinality: bool = false", shape_fn=common.scalar,
)
register_op(
    "ExperimentalMapDataset(input_dataset: variant, other_arguments: Targuments) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "use_inter_op_parallelism: bool = true", "preserve_cardinality: bool = false", "force_synchronous: bool = false",
    shape_fn=common.scalar,
)
register_op(
    "ExperimentalMatchingFilesDataset(patterns: string) -> handle: variant",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalMaxIntraOpParallelismDataset(input_dataset: variant, max_intra_op_parallelism: int64) -> "
    "handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalNonSerializableDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalParallelInterleaveDataset(input_dataset: variant, other_arguments: Targuments, cycle_length: "
    "int64, block_length: int64, sloppy: bool, buffer_output_elements: int64, prefetch_input_elements: int64) "
    "-> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op(
    "ExperimentalParseExampleDataset(input_dataset: variant, num_parallel_calls: int64, dense_defaults: "
    "Tdense) -> handle: variant",
    "sparse_keys: list(string) >= 0", "dense_keys: list(string) >= 0",
    "sparse_types: list({float, int64, string}) >= 0", "Tdense: list({float, int64, string}) >= 0",
    "dense_shapes: list(shape) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "sloppy: bool = false", shape_fn=common.scalar,
)
register_op(
    "ExperimentalPrivateThreadPoolDataset(input_dataset: variant, num_threads: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalRandomDataset(seed: int64, seed2: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalRebatchDataset(input_dataset: variant, num_replicas: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "use_fallback: bool = true",
    shape_fn=common.scalar,
)
register_op(
    "ExperimentalScanDataset(input_dataset: variant, initial_state: Tstate, other_arguments: Targuments) -> "
    "handle: variant",
    "f: func", "Tstate: list(type) >= 1", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "preserve_cardinality: bool = false", shape_fn=common.scalar,
)
register_op(
    "ExperimentalSetStatsAggregatorDataset(input_dataset: variant, stats_aggregator: resource, tag: string, "
    "counter_prefix: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalSleepDataset(input_dataset: variant, sleep_microseconds: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalSlidingWindowDataset(input_dataset: variant, window_size: int64, window_shift: int64, "
    "window_stride: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalSqlDataset(driver_name: string, data_source_name: string, query: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalStatsAggregatorHandle() -> handle: resource",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalStatsAggregatorSummary(iterator: resource) -> summary: string",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalTakeWhileDataset(input_dataset: variant, other_arguments: Targuments) -> handle: variant",
    "predicate: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalThreadPoolDataset(input_dataset: variant, thread_pool: resource) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalThreadPoolHandle() -> handle: resource",
    "num_threads: int", "max_intra_op_parallelism: int = 1", "display_name: string", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ExperimentalUnbatchDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ExperimentalUniqueDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
