"""Tensor arrays, stacks, queues, barriers and accumulators."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.data_flow import data_flow_shapes as shapes

register_op(
    "AccumulatorApplyGradient(handle: Ref(string), local_step: int64, gradient: dtype)",
    "dtype: numbertype", shape_fn=shapes.second_scalar,
)
register_op("AccumulatorNumAccumulated(handle: Ref(string)) -> num_accumulated: int32", shape_fn=common.scalar)
register_op("AccumulatorSetGlobalStep(handle: Ref(string), new_global_step: int64)", shape_fn=shapes.second_scalar)
register_op(
    "AccumulatorTakeGradient(handle: Ref(string), num_required: int32) -> average: dtype",
    "dtype: numbertype", shape_fn=shapes.second_scalar,
)
register_op(
    "Barrier() -> handle: Ref(string)",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op("BarrierClose(handle: Ref(string))", "cancel_pending_enqueues: bool = false", shape_fn=common.old_handle_in)
register_op("BarrierIncompleteSize(handle: Ref(string)) -> size: int32", shape_fn=common.old_handle_in)
register_op(
    "BarrierInsertMany(handle: Ref(string), keys: string, values: T)",
    "T: type", "component_index: int", shape_fn=shapes.barrier_insert_many,
)
register_op("BarrierReadySize(handle: Ref(string)) -> size: int32", shape_fn=common.old_handle_in)
register_op(
    "BarrierTakeMany(handle: Ref(string), num_elements: int32) -> indices: int64, keys: string, values: "
    "component_types",
    "component_types: list(type)", "allow_small_batch: bool = false", "wait_for_incomplete: bool = false",
    "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "ConditionalAccumulator() -> handle: Ref(string)",
    "dtype: numbertype", "shape: shape", "container: string = ''", "shared_name: string = ''",
    "reduction_type: {'MEAN', 'SUM'} = 'MEAN'", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "FIFOQueue() -> handle: Ref(string)",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "FIFOQueueV2() -> handle: resource",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", shape_fn=common.scalar,
)
register_op("FakeQueue(resource: resource) -> handle: Ref(string)", shape_fn=common.old_handle)
register_op(
    "PaddingFIFOQueue() -> handle: Ref(string)",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "PaddingFIFOQueueV2() -> handle: resource",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", shape_fn=common.scalar,
)
register_op(
    "PriorityQueue() -> handle: Ref(string)",
    "component_types: list(type) >= 0 = []", "shapes: list(shape) >= 0", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "PriorityQueueV2() -> handle: resource",
    "component_types: list(type) >= 0 = []", "shapes: list(shape) >= 0", "capacity: int = -1", "container: string = ''",
    "shared_name: string = ''", shape_fn=common.scalar,
)
register_op("QueueClose(handle: Ref(string))", "cancel_pending_enqueues: bool = false", shape_fn=common.old_handle_in)
register_op("QueueCloseV2(handle: resource)", "cancel_pending_enqueues: bool = false", shape_fn=common.no_outputs)
register_op(
    "QueueDequeue(handle: Ref(string)) -> components: component_types",
    "component_types: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "QueueDequeueMany(handle: Ref(string), n: int32) -> components: component_types",
    "component_types: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "QueueDequeueManyV2(handle: resource, n: int32) -> components: component_types",
    "component_types: list(type)", "timeout_ms: int = -1", shape_fn=shapes.dequeue_many,
)
register_op(
    "QueueDequeueUpTo(handle: Ref(string), n: int32) -> components: component_types",
    "component_types: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "QueueDequeueUpToV2(handle: resource, n: int32) -> components: component_types",
    "component_types: list(type)", "timeout_ms: int = -1", shape_fn=shapes.dequeue_up_to,
)
register_op(
    "QueueDequeueV2(handle: resource) -> components: component_types",
    "component_types: list(type)", "timeout_ms: int = -1", shape_fn=shapes.dequeue,
)
register_op(
    "QueueEnqueue(handle: Ref(string), components: Tcomponents)",
    "Tcomponents: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "QueueEnqueueMany(handle: Ref(string), components: Tcomponents)",
    "Tcomponents: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "QueueEnqueueManyV2(handle: resource, components: Tcomponents)",
    "Tcomponents: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op(
    "QueueEnqueueV2(handle: resource, components: Tcomponents)",
    "Tcomponents: list(type)", "timeout_ms: int = -1", shape_fn=common.unknown_shape,
)
register_op("QueueIsClosed(handle: Ref(string)) -> is_closed: bool", shape_fn=common.scalar)
register_op("QueueIsClosedV2(handle: resource) -> is_closed: bool", shape_fn=common.scalar)
register_op("QueueSize(handle: Ref(string)) -> size: int32", shape_fn=common.old_handle_in)
register_op("QueueSizeV2(handle: resource) -> size: int32", shape_fn=common.unchanged_shape)
register_op(
    "RandomShuffleQueue() -> handle: Ref(string)",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1",
    "min_after_dequeue: int = 0", "seed: int = 0", "seed2: int = 0", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "RandomShuffleQueueV2() -> handle: resource",
    "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []", "capacity: int = -1",
    "min_after_dequeue: int = 0", "seed: int = 0", "seed2: int = 0", "container: string = ''",
    "shared_name: string = ''", shape_fn=common.scalar,
)
register_op(
    "RecordInput() -> records: string",
    "file_pattern: string", "file_random_seed: int = 301", "file_shuffle_shift_ratio: float = 0.0",
    "file_buffer_size: int = 10000", "file_parallelism: int = 16", "batch_size: int = 32",
    "compression_type: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "ResourceAccumulatorApplyGradient(handle: resource, local_step: int64, gradient: dtype)",
    "dtype: numbertype", shape_fn=shapes.second_scalar,
)
register_op("ResourceAccumulatorNumAccumulated(handle: resource) -> num_accumulated: int32", shape_fn=common.scalar)
register_op("ResourceAccumulatorSetGlobalStep(handle: resource, new_global_step: int64)", shape_fn=shapes.second_scalar)
register_op(
    "ResourceAccumulatorTakeGradient(handle: resource, num_required: int32) -> average: dtype",
    "dtype: numbertype", shape_fn=shapes.second_scalar,
)
register_op(
    "ResourceConditionalAccumulator() -> handle: resource",
    "dtype: numbertype", "shape: shape", "container: string = ''", "shared_name: string = ''",
    "reduction_type: {'MEAN', 'SUM'} = 'MEAN'", shape_fn=common.old_handle,
)
register_op(
    "SparseAccumulatorApplyGradient(handle: Ref(string), local_step: int64, gradient_indices: int64, "
    "gradient_values: dtype, gradient_shape: int64)",
    "dtype: numbertype", "has_known_shape: bool", shape_fn=shapes.second_scalar,
)
register_op(
    "SparseAccumulatorTakeGradient(handle: Ref(string), num_required: int32) -> indices: int64, values: dtype, "
    "shape: int64",
    "dtype: numbertype", shape_fn=shapes.second_scalar,
)
register_op(
    "SparseConditionalAccumulator() -> handle: Ref(string)",
    "dtype: numbertype", "shape: shape", "container: string = ''", "shared_name: string = ''",
    "reduction_type: {'MEAN', 'SUM'} = 'MEAN'", stateful=True, shape_fn=common.old_handle,
)
register_op(
    "Stack() -> handle: Ref(string)",
    "elem_type: type", "stack_name: string = ''", stateful=True, shape_fn=common.old_handle,
)
register_op("StackClose(handle: Ref(string))", shape_fn=common.old_handle_in)
register_op("StackCloseV2(handle: resource)", shape_fn=common.old_handle_in)
register_op("StackPop(handle: Ref(string)) -> elem: elem_type", "elem_type: type", shape_fn=common.unknown_shape)
register_op("StackPopV2(handle: resource) -> elem: elem_type", "elem_type: type", shape_fn=common.unknown_shape)
register_op(
    "StackPush(handle: Ref(string), elem: T) -> output: T",
    "T: type", "swap_memory: bool = false", shape_fn=shapes.stack_push,
)
register_op(
    "StackPushV2(handle: resource, elem: T) -> output: T",
    "T: type", "swap_memory: bool = false", shape_fn=shapes.stack_push,
)
register_op(
    "StackV2(max_size: int32) -> handle: resource",
    "elem_type: type", "stack_name: string = ''", shape_fn=common.old_handle,
)
register_op(
    "TensorArray(size: int32) -> handle: Ref(string)",
    "dtype: type", "dynamic_size: bool = false", "clear_after_read: bool = true", "tensor_array_name: string = ''",
    "element_shape: shape = {unknown_rank: true}", stateful=True, deprecated=(16, "Use TensorArrayV3"),
    shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayClose(handle: Ref(string))",
    deprecated=(16, "Use TensorArrayCloseV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayCloseV2(handle: string)",
    deprecated=(26, "Use TensorArrayCloseV3"), shape_fn=common.old_handle_in,
)
register_op("TensorArrayCloseV3(handle: resource)", shape_fn=common.old_handle_in)
register_op(
    "TensorArrayConcat(handle: Ref(string), flow_in: float) -> value: dtype, lengths: int64",
    "dtype: type", "element_shape_except0: shape = {unknown_rank: true}", deprecated=(16, "Use TensorArrayGradV3"),
    shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayConcatV2(handle: string, flow_in: float) -> value: dtype, lengths: int64",
    "dtype: type", "element_shape_except0: shape = {unknown_rank: true}", shape_fn=shapes.tensor_array_concat,
)
register_op(
    "TensorArrayConcatV3(handle: resource, flow_in: float) -> value: dtype, lengths: int64",
    "dtype: type", "element_shape_except0: shape = {unknown_rank: true}", shape_fn=shapes.tensor_array_concat,
)
register_op(
    "TensorArrayGather(handle: Ref(string), indices: int32, flow_in: float) -> value: dtype",
    "dtype: type", "element_shape: shape = {unknown_rank: true}", deprecated=(16, "Use TensorArrayGatherV3"),
    shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayGatherV2(handle: string, indices: int32, flow_in: float) -> value: dtype",
    "dtype: type", "element_shape: shape = {unknown_rank: true}", deprecated=(26, "Use TensorArrayGatherV3"),
    shape_fn=shapes.tensor_array_gather,
)
register_op(
    "TensorArrayGatherV3(handle: resource, indices: int32, flow_in: float) -> value: dtype",
    "dtype: type", "element_shape: shape = {unknown_rank: true}", shape_fn=shapes.tensor_array_gather,
)
register_op(
    "TensorArrayGrad(handle: string, flow_in: float) -> grad_handle: Ref(string)",
    "source: string", stateful=True, deprecated=(16, "Use TensorArrayGradV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayGradV2(handle: string, flow_in: float) -> grad_handle: string",
    "source: string", stateful=True, deprecated=(26, "Use TensorArrayGradV3"), shape_fn=shapes.tensor_array_grad,
)
register_op(
    "TensorArrayGradV3(handle: resource, flow_in: float) -> grad_handle: resource, flow_out: float",
    "source: string", shape_fn=shapes.tensor_array_grad,
)
register_op(
    "TensorArrayGradWithShape(handle: resource, flow_in: float, shape_to_prepend: int32) -> grad_handle: resource, "
    "flow_out: float",
    "source: string", shape_fn=shapes.tensor_array_grad_with_shape,
)
register_op(
    "TensorArrayPack(handle: Ref(string), flow_in: float) -> value: dtype",
    "dtype: type", "element_shape: shape = {unknown_rank: true}",
    deprecated=(16, "Use TensorArrayGatherV3 with RangeOp"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayRead(handle: Ref(string), index: int32, flow_in: float) -> value: dtype",
    "dtype: type", deprecated=(16, "Use TensorArrayReadV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayReadV2(handle: string, index: int32, flow_in: float) -> value: dtype",
    "dtype: type", deprecated=(26, "Use TensorArrayReadV3"), shape_fn=shapes.tensor_array_read,
)
register_op(
    "TensorArrayReadV3(handle: resource, index: int32, flow_in: float) -> value: dtype",
    "dtype: type", shape_fn=shapes.tensor_array_read,
)
register_op(
    "TensorArrayScatter(handle: Ref(string), indices: int32, value: T, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(19, "Use TensorArrayGradV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayScatterV2(handle: string, indices: int32, value: T, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(26, "Use TensorArrayScatterV3"), shape_fn=shapes.tensor_array_scatter,
)
register_op(
    "TensorArrayScatterV3(handle: resource, indices: int32, value: T, flow_in: float) -> flow_out: float",
    "T: type", shape_fn=shapes.tensor_array_scatter,
)
register_op(
    "TensorArraySize(handle: Ref(string), flow_in: float) -> size: int32",
    deprecated=(16, "Use TensorArraySizeV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArraySizeV2(handle: string, flow_in: float) -> size: int32",
    deprecated=(26, "Use TensorArraySizeV3"), shape_fn=shapes.tensor_array_size,
)
register_op("TensorArraySizeV3(handle: resource, flow_in: float) -> size: int32", shape_fn=shapes.tensor_array_size)
register_op(
    "TensorArraySplit(handle: Ref(string), value: T, lengths: int64, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(16, "Use TensorArraySplitV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArraySplitV2(handle: string, value: T, lengths: int64, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(26, "Use TensorArraySplitV3"), shape_fn=shapes.tensor_array_split,
)
register_op(
    "TensorArraySplitV3(handle: resource, value: T, lengths: int64, flow_in: float) -> flow_out: float",
    "T: type", shape_fn=shapes.tensor_array_split,
)
register_op(
    "TensorArrayUnpack(handle: Ref(string), value: T, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(20, "Use TensorArrayScatterV3 with RangeOp"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayV2(size: int32) -> handle: string",
    "dtype: type", "element_shape: shape = {unknown_rank: true}", "dynamic_size: bool = false",
    "clear_after_read: bool = true", "tensor_array_name: string = ''", stateful=True,
    deprecated=(26, "Use TensorArrayV3"), shape_fn=shapes.tensor_array_v2,
)
register_op(
    "TensorArrayV3(size: int32) -> handle: resource, flow: float",
    "dtype: type", "element_shape: shape = {unknown_rank: true}", "dynamic_size: bool = false",
    "clear_after_read: bool = true", "identical_element_shapes: bool = false", "tensor_array_name: string = ''",
    shape_fn=shapes.tensor_array,
)
register_op(
    "TensorArrayWrite(handle: Ref(string), index: int32, value: T, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(16, "Use TensorArrayWriteV3"), shape_fn=common.unknown_shape,
)
register_op(
    "TensorArrayWriteV2(handle: string, index: int32, value: T, flow_in: float) -> flow_out: float",
    "T: type", deprecated=(26, "Use TensorArrayWriteV3"), shape_fn=shapes.tensor_array_write,
)
register_op(
    "TensorArrayWriteV3(handle: resource, index: int32, value: T, flow_in: float) -> flow_out: float",
    "T: type", shape_fn=shapes.tensor_array_write,
)
