"""Ops that the runtime adds to graphs: transfers between devices, arguments and results."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.control_flow import control_flow_shapes as shapes

register_op(
    "Recv() -> tensor: tensor_type",
    "tensor_type: type", "tensor_name: string", "send_device: string", "send_device_incarnation: int",
    "recv_device: string", "client_terminated: bool = false", stateful=True, distributed_communication=True,
    shape_fn=common.unknown_shape,
)
register_op(
    "Send(tensor: T)",
    "T: type", "tensor_name: string", "send_device: string", "send_device_incarnation: int", "recv_device: string",
    "client_terminated: bool = false", stateful=True, shape_fn=common.no_outputs,
)
register_op("_Arg() -> output: T", "T: type", "index: int >= 0", stateful=True, shape_fn=shapes.argument)
register_op(
    "_ArrayToList(input: N * T) -> output: out_types",
    "T: type", "N: int", "out_types: list(type)", shape_fn=common.unknown_shape,
)
register_op("_DeviceArg() -> output: T", "T: type", "index: int >= 0", stateful=True, shape_fn=shapes.argument)
register_op("_DeviceRetval(input: T)", "T: type", "index: int >= 0", stateful=True, shape_fn=common.no_outputs)
register_op(
    "_HostRecv() -> tensor: tensor_type",
    "tensor_type: type", "tensor_name: string", "send_device: string", "send_device_incarnation: int",
    "recv_device: string", "client_terminated: bool = false", stateful=True, distributed_communication=True,
    shape_fn=common.unknown_shape,
)
register_op(
    "_HostSend(tensor: T)",
    "T: type", "tensor_name: string", "send_device: string", "send_device_incarnation: int", "recv_device: string",
    "client_terminated: bool = false", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "_ListToArray(input: Tin) -> output: N * T",
    "Tin: list(type)", "T: type", "N: int", shape_fn=common.unknown_shape,
)
register_op(
    "_Recv() -> tensor: tensor_type",
    "tensor_type: type", "tensor_name: string", "send_device: string", "send_device_incarnation: int",
    "recv_device: string", "client_terminated: bool = false", stateful=True, distributed_communication=True,
    shape_fn=common.unknown_shape,
)
register_op("_Retval(input: T)", "T: type", "index: int >= 0", stateful=True, shape_fn=common.no_outputs)
register_op(
    "_Send(tensor: T)",
    "T: type", "tensor_name: string", "send_device: string", "send_device_incarnation: int", "recv_device: string",
    "client_terminated: bool = false", stateful=True, shape_fn=common.no_outputs,
)
