"""Ops that call functions: branches, loops, calls; and optional values."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.control_flow import control_flow_shapes as shapes

register_op(
    "Case(branch_index: int32, input: Tin) -> output: Tout",
    "Tin: list(type) >= 0", "Tout: list(type) >= 0", "branches: list(func) >= 1", "output_shapes: list(shape) = []",
    stateful=True, shape_fn=shapes.output_shapes,
)
register_op("DeviceIndex() -> index: int32", "device_names: list(string)", stateful=True, shape_fn=common.scalar)
register_op("FakeParam() -> output: dtype", "dtype: type", "shape: shape", shape_fn=common.explicit_shape)
register_op(
    "For(start: int32, limit: int32, delta: int32, input: T) -> output: T",
    "T: list(type) >= 0", "body: func", shape_fn=common.unknown_shape,
)
register_op(
    "If(cond: Tcond, input: Tin) -> output: Tout",
    "Tcond: type", "Tin: list(type) >= 0", "Tout: list(type) >= 0", "then_branch: func", "else_branch: func",
    "output_shapes: list(shape) = []", stateful=True, shape_fn=shapes.output_shapes,
)
register_op(
    "OptionalFromValue(components: Toutput_types) -> optional: variant",
    "Toutput_types: list(type)", shape_fn=shapes.optional_from_value,
)
register_op(
    "OptionalGetValue(optional: variant) -> components: output_types",
    "output_types: list(type)", "output_shapes: list(shape) >= 1", shape_fn=shapes.optional_get_value,
)
register_op("OptionalHasValue(optional: variant) -> has_value: bool", shape_fn=common.scalar)
register_op("OptionalNone() -> optional: variant", shape_fn=common.scalar)
register_op(
    "PartitionedCall(args: Tin) -> output: Tout",
    "Tin: list(type) >= 0", "Tout: list(type) >= 0", "f: func", "config: string = ''", "config_proto: string = ''",
    "executor_type: string = ''", shape_fn=common.unknown_shape,
)
register_op(
    "RemoteCall(target: string, args: Tin) -> output: Tout",
    "Tin: list(type)", "Tout: list(type)", "f: func", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "StatefulPartitionedCall(args: Tin) -> output: Tout",
    "Tin: list(type) >= 0", "Tout: list(type) >= 0", "f: func", "config: string = ''", "config_proto: string = ''",
    "executor_type: string = ''", stateful=True, distributed_communication=True, shape_fn=common.unknown_shape,
)
register_op(
    "StatelessCase(branch_index: int32, input: Tin) -> output: Tout",
    "Tin: list(type) >= 0", "Tout: list(type) >= 0", "branches: list(func) >= 1", "output_shapes: list(shape) = []",
    shape_fn=shapes.output_shapes,
)
register_op(
    "StatelessIf(cond: Tcond, input: Tin) -> output: Tout",
    "Tcond: type", "Tin: list(type) >= 0", "Tout: list(type) >= 0", "then_branch: func", "else_branch: func",
    "output_shapes: list(shape) = []", shape_fn=shapes.output_shapes,
)
register_op(
    "StatelessWhile(input: T) -> output: T",
    "T: list(type) >= 0", "cond: func", "body: func", "output_shapes: list(shape) = []",
    "parallel_iterations: int = 10", shape_fn=shapes.while_loop,
)
register_op(
    "SymbolicGradient(input: Tin) -> output: Tout",
    "Tin: list(type)", "Tout: list(type)", "f: func", shape_fn=shapes.symbolic_gradient,
)
register_op("ToBool(input: T) -> output: bool", "T: type", shape_fn=common.scalar)
register_op(
    "While(input: T) -> output: T",
    "T: list(type) >= 0", "cond: func", "body: func", "output_shapes: list(shape) = []",
    "parallel_iterations: int = 10", stateful=True, shape_fn=shapes.while_loop,
)
register_op(
    "_If(cond: Tcond, input: Tin) -> output: Tout",
    "Tcond: type", "Tin: list(type)", "Tout: list(type)", "then_branch: func", "else_branch: func", stateful=True,
    shape_fn=common.unknown_shape,
)
register_op(
    "_While(input: T) -> output: T",
    "T: list(type) >= 0", "cond: func", "body: func", stateful=True, shape_fn=common.unknown_shape,
)
