"""Variables behind resource handles, mutexes, and in-place updates of parts of a variable."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.state import state_shapes as shapes

register_op("AssignAddVariableOp(resource: resource, value: dtype)", "dtype: type", shape_fn=shapes.assign_variable)
register_op("AssignSubVariableOp(resource: resource, value: dtype)", "dtype: type", shape_fn=shapes.assign_variable)
register_op(
    "AssignVariableOp(resource: resource, value: dtype)",
    "dtype: type", "validate_shape: bool = false", shape_fn=shapes.assign_variable,
)
register_op("ConsumeMutexLock(mutex_lock: variant)", stateful=True, shape_fn=common.no_outputs)
register_op("DestroyResourceOp(resource: resource)", "ignore_lookup_error: bool = true", shape_fn=common.no_outputs)
register_op("DisableCopyOnRead(resource: resource)", shape_fn=common.no_outputs)
register_op("MutexLock(mutex: resource) -> mutex_lock: variant", shape_fn=common.scalar)
register_op(
    "MutexV2() -> resource: resource",
    "container: string = ''", "shared_name: string = ''", shape_fn=common.scalar,
)
register_op("ReadVariableOp(resource: resource) -> value: dtype", "dtype: type", shape_fn=shapes.read_variable)
register_op(
    "ResourceCountUpTo(resource: resource) -> output: T",
    "limit: int", "T: {int32, int64}", shape_fn=shapes.resource_count_up_to,
)
register_op(
    "ResourceGather(resource: resource, indices: Tindices) -> output: dtype",
    "batch_dims: int = 0", "validate_indices: bool = true", "dtype: type", "Tindices: {int32, int64}",
    shape_fn=shapes.resource_gather,
)
register_op(
    "ResourceGatherNd(resource: resource, indices: Tindices) -> output: dtype",
    "dtype: type", "Tindices: {int32, int64}", shape_fn=common.gather_nd,
)
register_op(
    "ResourceScatterAdd(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceScatterDiv(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceScatterMax(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceScatterMin(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceScatterMul(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceScatterNdAdd(ref: resource, indices: Tindices, updates: T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ResourceScatterNdMax(ref: resource, indices: Tindices, updates: T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ResourceScatterNdMin(ref: resource, indices: Tindices, updates: T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ResourceScatterNdSub(ref: resource, indices: Tindices, updates: T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ResourceScatterNdUpdate(ref: resource, indices: Tindices, updates: T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ResourceScatterSub(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceScatterUpdate(resource: resource, indices: Tindices, updates: dtype)",
    "dtype: type", "Tindices: {int32, int64}", shape_fn=shapes.resource_scatter,
)
register_op(
    "ResourceStridedSliceAssign(ref: resource, begin: Index, end: Index, strides: Index, value: T)",
    "T: type", "Index: {int32, int64}", "begin_mask: int = 0", "end_mask: int = 0", "ellipsis_mask: int = 0",
    "new_axis_mask: int = 0", "shrink_axis_mask: int = 0", shape_fn=common.no_outputs,
)
register_op(
    "VarHandleOp() -> resource: resource",
    "container: string = ''", "shared_name: string = ''", "debug_name: string = ''", "dtype: type", "shape: shape",
    "allowed_devices: list(string) = []", shape_fn=shapes.var_handle,
)
register_op("VarIsInitializedOp(resource: resource) -> is_initialized: bool", shape_fn=common.scalar)
register_op(
    "VariableShape(input: resource) -> output: out_type",
    "out_type: {int32, int64} = int32", shape_fn=shapes.variable_shape,
)
register_op(
    "_ReadVariablesOp(resources: N * resource) -> values: dtypes",
    "N: int >= 0", "dtypes: list(type)", shape_fn=shapes.read_variables,
)
register_op(
    "_VarHandlesOp() -> resources: N * resource",
    "containers: list(string)", "shared_names: list(string)", "N: int >= 0", "dtypes: list(type)",
    "shapes: list(shape)", shape_fn=shapes.var_handles,
)
