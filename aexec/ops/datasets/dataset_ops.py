"""Datasets: sources of elements, and what is made of them."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.datasets import dataset_shapes as shapes

register_op(
    "AssertCardinalityDataset(input_dataset: variant, cardinality: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "AssertNextDataset(input_dataset: variant, transformations: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "AssertPrevDataset(input_dataset: variant, transformations: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "AutoShardDataset(input_dataset: variant, num_workers: int64, index: int64) -> handle: variant",
    "auto_shard_policy: int = 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "num_replicas: int = 0", shape_fn=common.scalar,
)
register_op(
    "BatchDataset(input_dataset: variant, batch_size: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "BatchDatasetV2(input_dataset: variant, batch_size: int64, drop_remainder: bool) -> handle: variant",
    "parallel_copy: bool = false", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "BytesProducedStatsDataset(input_dataset: variant, tag: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "CSVDataset(filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: "
    "string, use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types) -> "
    "handle: variant",
    "output_types: list({float, double, int32, int64, string})", "output_shapes: list(shape) >= 1", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "CSVDatasetV2(filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: "
    "string, use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types, "
    "exclude_cols: int64) -> handle: variant",
    "output_types: list({float, double, int32, int64, string})", "output_shapes: list(shape) >= 1", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "CacheDataset(input_dataset: variant, filename: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "CacheDatasetV2(input_dataset: variant, filename: string, cache: resource) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "ChooseFastestBranchDataset(input_dataset: variant, ratio_numerator: int64, ratio_denominator: int64, "
    "other_arguments: Targuments) -> handle: variant",
    "Targuments: list(type) >= 0", "num_elements_per_branch: int >= 1", "branches: list(func) >= 1",
    "other_arguments_lengths: list(int) >= 1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op(
    "ChooseFastestDataset(input_datasets: N * variant) -> handle: variant",
    "N: int >= 2", "num_experiments: int", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op(
    "ConcatenateDataset(input_dataset: variant, another_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "DataServiceDataset(dataset_id: int64, processing_mode: string, address: string, protocol: string, "
    "job_name: string, max_outstanding_requests: int64, iteration_counter: resource) -> handle: variant",
    "task_refresh_interval_hint_ms: int = -1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "data_transfer_protocol: string = ''", "target_workers: string = 'AUTO'",
    "cross_trainer_cache_options: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "DataServiceDatasetV2(dataset_id: int64, processing_mode: string, address: string, protocol: string, "
    "job_name: string, consumer_index: int64, num_consumers: int64, max_outstanding_requests: int64, "
    "iteration_counter: resource) -> handle: variant",
    "task_refresh_interval_hint_ms: int = -1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "data_transfer_protocol: string = ''", "target_workers: string = 'AUTO'",
    "cross_trainer_cache_options: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "DataServiceDatasetV3(dataset_id: int64, processing_mode: string, address: string, protocol: string, "
    "job_name: string, consumer_index: int64, num_consumers: int64, max_outstanding_requests: int64, "
    "iteration_counter: resource) -> handle: variant",
    "task_refresh_interval_hint_ms: int = -1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "data_transfer_protocol: string = ''", "target_workers: string = 'AUTO'", "uncompress: bool = false",
    "uncompress_fn: func", "cross_trainer_cache_options: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "DataServiceDatasetV4(dataset_id: string, processing_mode: string, address: string, protocol: string, "
    "job_name: string, consumer_index: int64, num_consumers: int64, max_outstanding_requests: int64, "
    "iteration_counter: resource) -> handle: variant",
    "task_refresh_interval_hint_ms: int = -1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "data_transfer_protocol: string = ''", "target_workers: string = 'AUTO'", "uncompress: bool = false",
    "uncompress_fn: func", "cross_trainer_cache_options: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "DenseToSparseBatchDataset(input_dataset: variant, batch_size: int64, row_shape: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "DirectedInterleaveDataset(selector_input_dataset: variant, data_input_datasets: N * variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1",
    "stop_on_empty_dataset: bool = false", shape_fn=common.scalar,
)
register_op(
    "FilterByLastComponentDataset(input_dataset: variant) -> output: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "FilterDataset(input_dataset: variant, other_arguments: Targuments) -> handle: variant",
    "predicate: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "FinalizeDataset(input_dataset: variant) -> handle: variant",
    "has_captured_ref: bool = false", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op(
    "FixedLengthRecordDataset(filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: "
    "int64, buffer_size: int64) -> handle: variant",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "FixedLengthRecordDatasetV2(filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: "
    "int64, buffer_size: int64, compression_type: string) -> handle: variant",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "FlatMapDataset(input_dataset: variant, other_arguments: Targuments) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "GeneratorDataset(init_func_other_args: Tinit_func_args, next_func_other_args: Tnext_func_args, "
    "finalize_func_other_args: Tfinalize_func_args) -> handle: variant",
    "init_func: func", "next_func: func", "finalize_func: func", "Tinit_func_args: list(type) >= 0",
    "Tnext_func_args: list(type) >= 0", "Tfinalize_func_args: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "GlobalShuffleDataset(input_dataset: variant, seed: int64, seed2: int64, seed_generator: resource) -> "
    "handle: variant",
    "reshuffle_each_iteration: bool = true", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "GroupByReducerDataset(input_dataset: variant, key_func_other_arguments: Tkey_func_other_arguments, "
    "init_func_other_arguments: Tinit_func_other_arguments, reduce_func_other_arguments: "
    "Treduce_func_other_arguments, finalize_func_other_arguments: Tfinalize_func_other_arguments) -> handle: "
    "variant",
    "key_func: func", "init_func: func", "reduce_func: func", "finalize_func: func",
    "Tkey_func_other_arguments: list(type) >= 0", "Tinit_func_other_arguments: list(type) >= 0",
    "Treduce_func_other_arguments: list(type) >= 0", "Tfinalize_func_other_arguments: list(type) >= 0",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "GroupByWindowDataset(input_dataset: variant, key_func_other_arguments: Tkey_func_other_arguments, "
    "reduce_func_other_arguments: Treduce_func_other_arguments, window_size_func_other_arguments: "
    "Twindow_size_func_other_arguments) -> handle: variant",
    "key_func: func", "reduce_func: func", "window_size_func: func", "Tkey_func_other_arguments: list(type) >= 0",
    "Treduce_func_other_arguments: list(type) >= 0", "Twindow_size_func_other_arguments: list(type) >= 0",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "IgnoreErrorsDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "log_warning: bool = false",
    shape_fn=common.scalar,
)
register_op(
    "IndexFlatMapDataset(input_dataset: variant, map_func_other_args: Tmap_func_args, "
    "index_map_func_other_args: Tindex_map_func_args, output_cardinality: int64) -> handle: variant",
    "map_func: func", "index_map_func: func", "Tmap_func_args: list(type) >= 0",
    "Tindex_map_func_args: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "InterleaveDataset(input_dataset: variant, other_arguments: Targuments, cycle_length: int64, block_length: "
    "int64) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "LMDBDataset(filenames: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "LatencyStatsDataset(input_dataset: variant, tag: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "LegacyParallelInterleaveDatasetV2(input_dataset: variant, other_arguments: Targuments, cycle_length: "
    "int64, block_length: int64, buffer_output_elements: int64, prefetch_input_elements: int64) -> handle: "
    "variant",
    "f: func", "deterministic: string = 'default'", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ListDataset(tensors: Tinput_types) -> handle: variant",
    "Tinput_types: list(type) >= 1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ListSnapshotChunksDataset(snapshot_path: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "LoadDataset(path: string, reader_func_other_args: Treader_func_args) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "compression: string = ''", "reader_func: func",
    "Treader_func_args: list(type) >= 0", stateful=True, shape_fn=common.scalar,
)
register_op(
    "MapAndBatchDataset(input_dataset: variant, other_arguments: Targuments, batch_size: int64, "
    "num_parallel_calls: int64, drop_remainder: bool) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "preserve_cardinality: bool = false", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "MapDataset(input_dataset: variant, other_arguments: Targuments) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "use_inter_op_parallelism: bool = true", "preserve_cardinality: bool = false", "force_synchronous: bool = false",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op("MatchingFilesDataset(patterns: string) -> handle: variant", stateful=True, shape_fn=common.scalar)
register_op(
    "MaxIntraOpParallelismDataset(input_dataset: variant, max_intra_op_parallelism: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ModelDataset(input_dataset: variant) -> handle: variant",
    "algorithm: int = 0", "cpu_budget: int = 0", "ram_budget: int = 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "NonSerializableDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "OptimizeDataset(input_dataset: variant, optimizations: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "optimization_configs: list(string) = []",
    shape_fn=common.scalar,
)
register_op(
    "OptimizeDatasetV2(input_dataset: variant, optimizations_enabled: string, optimizations_disabled: string, "
    "optimizations_default: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "optimization_configs: list(string) = []",
    shape_fn=common.scalar,
)
register_op(
    "OptionsDataset(input_dataset: variant) -> handle: variant",
    "serialized_options: string", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "PaddedBatchDataset(input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: "
    "Toutput_types) -> handle: variant",
    "Toutput_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1", "metadata: string = ''",
    shape_fn=common.scalar,
)
register_op(
    "PaddedBatchDatasetV2(input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: "
    "Toutput_types, drop_remainder: bool) -> handle: variant",
    "parallel_copy: bool = false", "Toutput_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelBatchDataset(input_dataset: variant, batch_size: int64, num_parallel_calls: int64, "
    "drop_remainder: bool) -> handle: variant",
    "parallel_copy: bool = false", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "deterministic: string = 'default'", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelFilterDataset(input_dataset: variant, other_arguments: Targuments, num_parallel_calls: int64) -> "
    "handle: variant",
    "predicate: func", "deterministic: string = 'default'", "Targuments: list(type) >= 0",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelInterleaveDataset(input_dataset: variant, other_arguments: Targuments, cycle_length: int64, "
    "block_length: int64, sloppy: bool, buffer_output_elements: int64, prefetch_input_elements: int64) -> "
    "handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelInterleaveDatasetV2(input_dataset: variant, other_arguments: Targuments, cycle_length: int64, "
    "block_length: int64, num_parallel_calls: int64) -> handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "sloppy: bool = false", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelInterleaveDatasetV3(input_dataset: variant, other_arguments: Targuments, cycle_length: int64, "
    "block_length: int64, num_parallel_calls: int64) -> handle: variant",
    "f: func", "deterministic: string = 'default'", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelInterleaveDatasetV4(input_dataset: variant, other_arguments: Targuments, cycle_length: int64, "
    "block_length: int64, buffer_output_elements: int64, prefetch_input_elements: int64, num_parallel_calls: "
    "int64) -> handle: variant",
    "f: func", "deterministic: string = 'default'", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelMapDataset(input_dataset: variant, other_arguments: Targuments, num_parallel_calls: int32) -> "
    "handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "use_inter_op_parallelism: bool = true", "sloppy: bool = false", "preserve_cardinality: bool = false",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParallelMapDatasetV2(input_dataset: variant, other_arguments: Targuments, num_parallel_calls: int64) -> "
    "handle: variant",
    "f: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "use_inter_op_parallelism: bool = true", "deterministic: string = 'default'", "preserve_cardinality: bool = false",
    "use_unbounded_threadpool: bool = false", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ParseExampleDataset(input_dataset: variant, num_parallel_calls: int64, dense_defaults: Tdense) -> handle: variant",
    "sparse_keys: list(string) >= 0", "dense_keys: list(string) >= 0",
    "sparse_types: list({float, int64, string}) >= 0", "Tdense: list({float, int64, string}) >= 0",
    "dense_shapes: list(shape) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "sloppy: bool = false", "ragged_keys: list(string) >= 0 = []",
    "ragged_value_types: list({float, int64, string}) >= 0 = []", "ragged_split_types: list({int32, int64}) >= 0 = []",
    shape_fn=common.scalar,
)
register_op(
    "ParseExampleDatasetV2(input_dataset: variant, num_parallel_calls: int64, dense_defaults: Tdense) -> "
    "handle: variant",
    "sparse_keys: list(string) >= 0", "dense_keys: list(string) >= 0",
    "sparse_types: list({float, int64, string}) >= 0", "Tdense: list({float, int64, string}) >= 0",
    "dense_shapes: list(shape) >= 0", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "deterministic: string = 'default'", "ragged_keys: list(string) >= 0 = []",
    "ragged_value_types: list({float, int64, string}) >= 0 = []", "ragged_split_types: list({int32, int64}) >= 0 = []",
    shape_fn=common.scalar,
)
register_op(
    "PrefetchDataset(input_dataset: variant, buffer_size: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "slack_period: int = 0",
    "legacy_autotune: bool = true", "buffer_size_min: int = 0", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "PrivateThreadPoolDataset(input_dataset: variant, num_threads: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "RandomDataset(seed: int64, seed2: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "RandomDatasetV2(seed: int64, seed2: int64, seed_generator: resource) -> handle: variant",
    "rerandomize_each_iteration: bool = false", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "RangeDataset(start: int64, stop: int64, step: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''",
    "replicate_on_split: bool = false", stateful=True, shape_fn=common.scalar,
)
register_op(
    "RebatchDataset(input_dataset: variant, num_replicas: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "use_fallback: bool = true",
    shape_fn=common.scalar,
)
register_op(
    "RebatchDatasetV2(input_dataset: variant, batch_sizes: int64, drop_remainder: bool) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "ReduceDataset(input_dataset: variant, initial_state: Tstate, other_arguments: Targuments) -> components: "
    "output_types",
    "f: func", "Tstate: list(type) >= 1", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "use_inter_op_parallelism: bool = true", "metadata: string = ''", stateful=True,
    shape_fn=shapes.elements,
)
register_op(
    "RegisterDataset(dataset: variant, address: string, protocol: string) -> dataset_id: int64",
    "external_state_policy: int", "element_spec: string = ''", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "RegisterDatasetV2(dataset: variant, address: string, protocol: string) -> dataset_id: string",
    "external_state_policy: int", "element_spec: string = ''", "requested_dataset_id: string = ''",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "RepeatDataset(input_dataset: variant, count: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "RewriteDataset(input_dataset: variant, rewrite_name: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "SamplingDataset(input_dataset: variant, rate: float, seed: int64, seed2: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "SaveDataset(input_dataset: variant, path: string, shard_func_other_args: Tshard_func_args)",
    "compression: string = ''", "shard_func: func", "use_shard_func: bool = true", "Tshard_func_args: list(type) >= 0",
    stateful=True, shape_fn=shapes.no_outputs,
)
register_op(
    "SaveDatasetV2(input_dataset: variant, path: string, shard_func_other_args: Tshard_func_args) -> handle: variant",
    "compression: string = ''", "shard_func: func", "use_shard_func: bool = true", "Tshard_func_args: list(type) >= 0",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ScanDataset(input_dataset: variant, initial_state: Tstate, other_arguments: Targuments) -> handle: variant",
    "f: func", "Tstate: list(type) >= 1", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "preserve_cardinality: bool = false", "use_default_device: bool = true",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "SetStatsAggregatorDataset(input_dataset: variant, stats_aggregator: resource, tag: string, "
    "counter_prefix: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ShardDataset(input_dataset: variant, num_shards: int64, index: int64) -> handle: variant",
    "require_non_empty: bool = false", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ShuffleAndRepeatDataset(input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: "
    "int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "reshuffle_each_iteration: bool = true",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ShuffleAndRepeatDatasetV2(input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: "
    "int64, seed_generator: resource) -> handle: variant",
    "reshuffle_each_iteration: bool = true", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ShuffleDataset(input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64) -> handle: variant",
    "reshuffle_each_iteration: bool = true", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ShuffleDatasetV2(input_dataset: variant, buffer_size: int64, seed_generator: resource) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "ShuffleDatasetV3(input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, seed_generator: "
    "resource) -> handle: variant",
    "reshuffle_each_iteration: bool = true", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "SkipDataset(input_dataset: variant, count: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "SleepDataset(input_dataset: variant, sleep_microseconds: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", shape_fn=common.scalar,
)
register_op(
    "SlidingWindowDataset(input_dataset: variant, window_size: int64, window_shift: int64, window_stride: "
    "int64) -> handle: variant",
    "drop_remainder: bool = true", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    shape_fn=common.scalar,
)
register_op(
    "SnapshotChunkDataset(chunk_file: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "compression: string = ''",
    shape_fn=common.scalar,
)
register_op(
    "SnapshotDataset(input_dataset: variant, path: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "compression: string = ''",
    "reader_path_prefix: string = ''", "writer_path_prefix: string = ''", "shard_size_bytes: int = 10737418240",
    "pending_snapshot_expiry_seconds: int = 86400", "num_reader_threads: int = 1", "reader_buffer_size: int = 1",
    "num_writer_threads: int = 1", "writer_buffer_size: int = 1", "shuffle_on_read: bool = false", "seed: int = 0",
    "seed2: int = 0", "mode: string = 'auto'", "snapshot_name: string = ''", shape_fn=common.scalar,
)
register_op(
    "SnapshotDatasetV2(input_dataset: variant, path: string, reader_func_other_args: Treader_func_args, "
    "shard_func_other_args: Tshard_func_args) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "compression: string = ''",
    "reader_prefix: string = ''", "writer_prefix: string = ''", "hash_valid: bool = false", "hash: int = 0",
    "reader_func: func", "shard_func: func", "Treader_func_args: list(type) >= 0", "Tshard_func_args: list(type) >= 0",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "SparseTensorSliceDataset(indices: int64, values: Tvalues, dense_shape: int64) -> handle: variant",
    "Tvalues: type", stateful=True, shape_fn=common.scalar,
)
register_op(
    "SqlDataset(driver_name: string, data_source_name: string, query: string) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "TFRecordDataset(filenames: string, compression_type: string, buffer_size: int64) -> handle: variant",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "TFRecordDatasetV2(filenames: string, compression_type: string, buffer_size: int64, byte_offsets: int64) "
    "-> handle: variant",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "TakeDataset(input_dataset: variant, count: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "TakeWhileDataset(input_dataset: variant, other_arguments: Targuments) -> handle: variant",
    "predicate: func", "Targuments: list(type) >= 0", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "TensorDataset(components: Toutput_types) -> handle: variant",
    "Toutput_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "TensorSliceDataset(components: Toutput_types) -> handle: variant",
    "Toutput_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "is_files: bool = false",
    "metadata: string = ''", "replicate_on_split: bool = false", stateful=True, shape_fn=common.scalar,
)
register_op(
    "TextLineDataset(filenames: string, compression_type: string, buffer_size: int64) -> handle: variant",
    "metadata: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "ThreadPoolDataset(input_dataset: variant, thread_pool: resource) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "UnbatchDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "UniqueDataset(input_dataset: variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "WeightedFlatMapDataset(input_datasets: N * variant, weights: M * double) -> handle: variant",
    "N: int >= 2", "M: int >= 2", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "WindowDataset(input_dataset: variant, size: int64, shift: int64, stride: int64, drop_remainder: bool) -> "
    "handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", shape_fn=common.scalar,
)
register_op(
    "ZipDataset(input_datasets: N * variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1", "metadata: string = ''",
    shape_fn=common.scalar,
)
