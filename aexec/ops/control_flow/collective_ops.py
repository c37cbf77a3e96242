"""Collectives: each node of a group gives a value, and all get the combined result."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common

register_op(
    "CollectiveBcastRecv() -> data: T",
    "T: {bool, float, half, double, int32, int64}", "group_size: int", "group_key: int", "instance_key: int",
    "shape: shape", "communication_hint: string = 'auto'", "timeout_seconds: float = 0", stateful=True,
    distributed_communication=True, shape_fn=common.explicit_shape,
)
register_op(
    "CollectiveBcastSend(input: T) -> data: T",
    "T: {bool, float, half, double, int32, int64}", "group_size: int", "group_key: int", "instance_key: int",
    "shape: shape", "communication_hint: string = 'auto'", "timeout_seconds: float = 0", stateful=True,
    distributed_communication=True, shape_fn=common.explicit_shape,
)
register_op(
    "CollectiveGather(input: T) -> data: T",
    "T: {float, half, double, int32, int64}", "group_size: int", "group_key: int", "instance_key: int",
    "shape: shape", "communication_hint: string = 'auto'", "timeout_seconds: float = 0", stateful=True,
    distributed_communication=True, shape_fn=common.explicit_shape,
)
register_op(
    "CollectiveReduce(input: T) -> data: T",
    "T: {bfloat16, float, half, double, int32, int64}", "group_size: int", "group_key: int", "instance_key: int",
    "merge_op: {'Min', 'Max', 'Mul', 'Add'}", "final_op: {'Id', 'Div'}", "subdiv_offsets: list(int)",
    "wait_for: list(int) = []", "communication_hint: string = 'auto'", "timeout_seconds: float = 0", stateful=True,
    distributed_communication=True, shape_fn=common.unchanged_shape,
)
