"""Iterators over datasets, and what datasets share."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.datasets import dataset_shapes as shapes

register_op(
    "AnonymousIterator() -> handle: resource",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "AnonymousIteratorV2() -> handle: resource, deleter: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=shapes.scalars,
)
register_op(
    "AnonymousIteratorV3() -> handle: resource",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op("AnonymousMemoryCache() -> handle: resource, deleter: variant", stateful=True, shape_fn=shapes.scalars)
register_op(
    "AnonymousMultiDeviceIterator() -> handle: resource, deleter: variant",
    "devices: list(string) >= 1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True,
    shape_fn=shapes.scalars,
)
register_op(
    "AnonymousMultiDeviceIteratorV3() -> handle: resource",
    "devices: list(string) >= 1", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True,
    shape_fn=common.scalar,
)
register_op(
    "AnonymousRandomSeedGenerator(seed: int64, seed2: int64) -> handle: resource, deleter: variant",
    stateful=True, shape_fn=shapes.scalars,
)
register_op(
    "AnonymousSeedGenerator(seed: int64, seed2: int64, reshuffle: bool) -> handle: resource, deleter: variant",
    stateful=True, shape_fn=shapes.scalars,
)
register_op(
    "CompressElement(components: input_types) -> compressed: variant",
    "input_types: list(type) >= 1", shape_fn=common.scalar,
)
register_op(
    "DatasetCardinality(input_dataset: variant) -> cardinality: int64",
    "cardinality_options: string = ''", shape_fn=common.scalar,
)
register_op("DatasetFingerprint(input_dataset: variant) -> fingerprint: uint64", shape_fn=common.scalar)
register_op("DatasetFromGraph(graph_def: string) -> handle: variant", shape_fn=common.scalar)
register_op(
    "DatasetToGraph(input_dataset: variant) -> graph: string",
    "stateful_whitelist: list(string) >= 0 = []", "allow_stateful: bool = false",
    "strip_device_assignment: bool = false", shape_fn=common.scalar,
)
register_op(
    "DatasetToGraphV2(input_dataset: variant) -> graph: string",
    "external_state_policy: int = 0", "strip_device_assignment: bool = false", shape_fn=common.scalar,
)
register_op(
    "DatasetToSingleElement(dataset: variant) -> components: output_types",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''", stateful=True,
    shape_fn=shapes.elements,
)
register_op(
    "DatasetToTFRecord(input_dataset: variant, filename: string, compression_type: string)",
    stateful=True, shape_fn=shapes.no_outputs,
)
register_op("DeleteIterator(handle: resource, deleter: variant)", stateful=True, shape_fn=shapes.no_outputs)
register_op("DeleteMemoryCache(handle: resource, deleter: variant)", stateful=True, shape_fn=shapes.no_outputs)
register_op(
    "DeleteMultiDeviceIterator(multi_device_iterator: resource, iterators: N * resource, deleter: variant)",
    "N: int >= 0", stateful=True, shape_fn=shapes.no_outputs,
)
register_op("DeleteRandomSeedGenerator(handle: resource, deleter: variant)", stateful=True, shape_fn=shapes.no_outputs)
register_op("DeleteSeedGenerator(handle: resource, deleter: variant)", stateful=True, shape_fn=shapes.no_outputs)
register_op(
    "DeserializeIterator(resource_handle: resource, serialized: variant)",
    stateful=True, shape_fn=shapes.no_outputs,
)
register_op("DummyIterationCounter() -> handle: resource", stateful=True, shape_fn=common.scalar)
register_op("DummyMemoryCache() -> handle: resource", stateful=True, shape_fn=common.scalar)
register_op("DummySeedGenerator() -> handle: resource", stateful=True, shape_fn=common.scalar)
register_op(
    "Iterator() -> handle: resource",
    "shared_name: string", "container: string", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "IteratorFromStringHandle(string_handle: string) -> resource_handle: resource",
    "output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []", stateful=True, shape_fn=common.scalar,
)
register_op(
    "IteratorFromStringHandleV2(string_handle: string) -> resource_handle: resource",
    "output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []", stateful=True, shape_fn=common.scalar,
)
register_op("IteratorGetDevice(resource: resource) -> device: string", stateful=True, shape_fn=common.scalar)
register_op("IteratorGetModelProto(iterator: resource) -> model_proto: string", stateful=True, shape_fn=common.scalar)
register_op(
    "IteratorGetNext(iterator: resource) -> components: output_types",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=shapes.elements,
)
register_op(
    "IteratorGetNextAsOptional(iterator: resource) -> optional: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "IteratorGetNextSync(iterator: resource) -> components: output_types",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=shapes.elements,
)
register_op(
    "IteratorToStringHandle(resource_handle: resource) -> string_handle: string",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "IteratorV2() -> handle: resource",
    "shared_name: string", "container: string", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    stateful=True, shape_fn=common.scalar,
)
register_op("MakeIterator(dataset: variant, iterator: resource)", stateful=True, shape_fn=shapes.no_outputs)
register_op(
    "MultiDeviceIterator() -> handle: resource",
    "devices: list(string) >= 1", "shared_name: string", "container: string", "output_types: list(type) >= 1",
    "output_shapes: list(shape) >= 1", stateful=True, shape_fn=common.scalar,
)
register_op(
    "MultiDeviceIteratorFromStringHandle(string_handle: string) -> multi_device_iterator: resource",
    "output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []", stateful=True, shape_fn=common.scalar,
)
register_op(
    "MultiDeviceIteratorGetNextFromShard(multi_device_iterator: resource, shard_num: int32, incarnation_id: "
    "int64) -> components: output_types",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", stateful=True, shape_fn=shapes.elements,
)
register_op(
    "MultiDeviceIteratorInit(dataset: variant, multi_device_iterator: resource, max_buffer_size: int64) -> "
    "incarnation_id: int64",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "MultiDeviceIteratorToStringHandle(multi_device_iterator: resource) -> string_handle: string",
    stateful=True, shape_fn=common.scalar,
)
register_op(
    "OneShotIterator() -> handle: resource",
    "dataset_factory: func", "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "SerializeIterator(resource_handle: resource) -> serialized: variant",
    "external_state_policy: int = 0", stateful=True, shape_fn=shapes.vector,
)
register_op(
    "SnapshotDatasetReader(shard_dir: string, start_index: int64) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "compression: string = ''", "version: int",
    shape_fn=common.scalar,
)
register_op(
    "SnapshotNestedDatasetReader(inputs: N * variant) -> handle: variant",
    "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1", shape_fn=common.scalar,
)
register_op(
    "StatsAggregatorHandle() -> handle: resource",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "StatsAggregatorHandleV2() -> handle: resource",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "StatsAggregatorSetSummaryWriter(stats_aggregator: resource, summary: resource)",
    stateful=True, shape_fn=shapes.no_outputs,
)
register_op("StatsAggregatorSummary(iterator: resource) -> summary: string", stateful=True, shape_fn=common.scalar)
register_op(
    "ThreadPoolHandle() -> handle: resource",
    "num_threads: int", "max_intra_op_parallelism: int = 1", "display_name: string", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op("UnwrapDatasetVariant(input_handle: variant) -> output_handle: variant", shape_fn=common.scalar)
register_op("WrapDatasetVariant(input_handle: variant) -> output_handle: variant", shape_fn=common.scalar)
