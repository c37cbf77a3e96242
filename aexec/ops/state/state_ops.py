"""Ref variables and in-place updates of them."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.state import state_shapes as shapes

register_op(
    "Assign(ref: Ref(T), value: T) -> output_ref: Ref(T)",
    "T: type", "validate_shape: bool = true", "use_locking: bool = true", allows_uninitialized_input=True,
    shape_fn=shapes.assign,
)
register_op(
    "AssignAdd(ref: Ref(T), value: T) -> output_ref: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.merged_inputs,
)
register_op(
    "AssignSub(ref: Ref(T), value: T) -> output_ref: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.merged_inputs,
)
register_op("CountUpTo(ref: Ref(T)) -> output: T", "limit: int", "T: {int32, int64}", shape_fn=shapes.count_up_to)
register_op(
    "DestroyTemporaryVariable(ref: Ref(T)) -> value: T",
    "T: type", "var_name: string", shape_fn=common.unchanged_shape,
)
register_op(
    "IsVariableInitialized(ref: Ref(dtype)) -> is_initialized: bool",
    "dtype: type", allows_uninitialized_input=True, shape_fn=common.scalar,
)
register_op(
    "ScatterAdd(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.scatter,
)
register_op(
    "ScatterDiv(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.scatter,
)
register_op(
    "ScatterMax(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: {half, bfloat16, float, double, int32, int64}", "Tindices: {int32, int64}", "use_locking: bool = false",
    shape_fn=shapes.scatter,
)
register_op(
    "ScatterMin(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: {half, bfloat16, float, double, int32, int64}", "Tindices: {int32, int64}", "use_locking: bool = false",
    shape_fn=shapes.scatter,
)
register_op(
    "ScatterMul(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.scatter,
)
register_op(
    "ScatterNdAdd(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ScatterNdMax(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ScatterNdMin(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ScatterNdSub(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ScatterNdUpdate(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", "bad_indices_policy: string = ''",
    shape_fn=common.scatter_nd_update,
)
register_op(
    "ScatterSub(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.scatter,
)
register_op(
    "ScatterUpdate(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T)",
    "T: type", "Tindices: {int32, int64}", "use_locking: bool = true", shape_fn=shapes.scatter,
)
register_op(
    "StridedSliceAssign(ref: Ref(T), begin: Index, end: Index, strides: Index, value: T) -> output_ref: Ref(T)",
    "T: type", "Index: {int32, int64}", "begin_mask: int = 0", "end_mask: int = 0", "ellipsis_mask: int = 0",
    "new_axis_mask: int = 0", "shrink_axis_mask: int = 0", shape_fn=common.unchanged_shape,
)
register_op(
    "TemporaryVariable() -> ref: Ref(dtype)",
    "shape: shape", "dtype: type", "var_name: string = ''", stateful=True, shape_fn=common.explicit_shape,
)
register_op(
    "Variable() -> ref: Ref(dtype)",
    "shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''", stateful=True,
    shape_fn=shapes.variable,
)
register_op(
    "VariableV2() -> ref: Ref(dtype)",
    "shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''", stateful=True,
    shape_fn=common.explicit_shape,
)
