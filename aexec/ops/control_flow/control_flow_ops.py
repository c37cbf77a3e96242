"""Dataflow control: branches, merges, loop frames, and the nodes that only carry control."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.control_flow import control_flow_shapes as shapes

register_op("Abort()", "error_msg: string = ''", "exit_without_error: bool = false", shape_fn=common.no_outputs)
register_op("ControlTrigger()", shape_fn=common.no_outputs)
register_op(
    "Enter(data: T) -> output: T",
    "T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10",
    shape_fn=shapes.enter,
)
register_op("Exit(data: T) -> output: T", "T: type", shape_fn=common.unchanged_shape)
register_op("LoopCond(input: bool) -> output: bool", shape_fn=shapes.loop_cond)
register_op("Merge(inputs: N * T) -> output: T, value_index: int32", "T: type", "N: int", shape_fn=shapes.merge)
register_op("NextIteration(data: T) -> output: T", "T: type", shape_fn=common.unchanged_shape)
register_op("NoOp()", shape_fn=common.no_outputs)
register_op(
    "RefEnter(data: Ref(T)) -> output: Ref(T)",
    "T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10",
    shape_fn=common.unchanged_shape,
)
register_op("RefExit(data: Ref(T)) -> output: Ref(T)", "T: type", shape_fn=common.unchanged_shape)
register_op(
    "RefMerge(inputs: Ref(N * T)) -> output: Ref(T), value_index: int32",
    "T: type", "N: int", shape_fn=shapes.merge,
)
register_op("RefNextIteration(data: Ref(T)) -> output: Ref(T)", "T: type", shape_fn=common.unchanged_shape)
register_op(
    "RefSelect(index: int32, inputs: Ref(N * T)) -> output: Ref(T)",
    "T: type", "N: int", shape_fn=shapes.ref_select,
)
register_op(
    "RefSwitch(data: Ref(T), pred: bool) -> output_false: Ref(T), output_true: Ref(T)",
    "T: type", allows_uninitialized_input=True, shape_fn=shapes.switch,
)
register_op("Switch(data: T, pred: bool) -> output_false: T, output_true: T", "T: type", shape_fn=shapes.switch)
register_op(
    "_SwitchN(data: T, output_index: int32) -> outputs: num_outs * T",
    "num_outs: int", "T: type", shape_fn=shapes.switch,
)
