"""Reading and writing slices by index."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.array import gather_scatter_shapes as shapes

register_op(
    "DynamicPartition(data: T, partitions: int32) -> outputs: num_partitions * T",
    "num_partitions: int", "T: type", shape_fn=shapes.dynamic_partition,
)
register_op(
    "DynamicStitch(indices: N * int32, data: N * T) -> merged: T",
    "N: int", "T: type", shape_fn=shapes.dynamic_stitch,
)
register_op(
    "Gather(params: Tparams, indices: Tindices) -> output: Tparams",
    "validate_indices: bool = true", "Tparams: type", "Tindices: {int32, int64}", shape_fn=shapes.gather,
)
register_op(
    "GatherNd(params: Tparams, indices: Tindices) -> output: Tparams",
    "Tparams: type", "Tindices: {int16, int32, int64}", "bad_indices_policy: string = ''", shape_fn=common.gather_nd,
)
register_op(
    "GatherV2(params: Tparams, indices: Tindices, axis: Taxis) -> output: Tparams",
    "batch_dims: int = 0", "Tparams: type", "Tindices: {int16, int32, int64}", "Taxis: {int32, int64}",
    shape_fn=shapes.gather_v2,
)
register_op("InplaceAdd(x: T, i: int32, v: T) -> y: T", "T: type", shape_fn=common.unchanged_shape)
register_op("InplaceSub(x: T, i: int32, v: T) -> y: T", "T: type", shape_fn=common.unchanged_shape)
register_op("InplaceUpdate(x: T, i: int32, v: T) -> y: T", "T: type", shape_fn=common.unchanged_shape)
register_op(
    "ParallelDynamicStitch(indices: N * int32, data: N * T) -> merged: T",
    "N: int", "T: type", shape_fn=shapes.dynamic_stitch,
)
register_op(
    "ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> output: T",
    "T: type", "Tindices: {int16, int32, int64}", "bad_indices_policy: string = ''", shape_fn=shapes.scatter_nd,
)
register_op(
    "ScatterNdNonAliasingAdd(input: T, indices: Tindices, updates: T) -> output: T",
    "T: {numbertype, bool}", "Tindices: {int32, int64}", "bad_indices_policy: string = ''",
    shape_fn=shapes.tensor_scatter,
)
register_op(
    "TensorScatterAdd(tensor: T, indices: Tindices, updates: T) -> output: T",
    "T: type", "Tindices: {int32, int64}", "bad_indices_policy: string = ''", shape_fn=shapes.tensor_scatter,
)
register_op(
    "TensorScatterMax(tensor: T, indices: Tindices, updates: T) -> output: T",
    "T: type", "Tindices: {int32, int64}", "bad_indices_policy: string = ''", shape_fn=shapes.tensor_scatter,
)
register_op(
    "TensorScatterMin(tensor: T, indices: Tindices, updates: T) -> output: T",
    "T: type", "Tindices: {int32, int64}", "bad_indices_policy: string = ''", shape_fn=shapes.tensor_scatter,
)
register_op(
    "TensorScatterSub(tensor: T, indices: Tindices, updates: T) -> output: T",
    "T: type", "Tindices: {int32, int64}", "bad_indices_policy: string = ''", shape_fn=shapes.tensor_scatter,
)
register_op(
    "TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> output: T",
    "T: type", "Tindices: {int16, int32, int64, uint16}", "bad_indices_policy: string = ''",
    shape_fn=shapes.tensor_scatter,
)
