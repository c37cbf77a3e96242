"""Tensors that a session keeps between steps."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.data_flow import data_flow_shapes as shapes

register_op("DeleteSessionTensor(handle: string)", stateful=True, shape_fn=shapes.first_scalar)
register_op("GetSessionHandle(value: T) -> handle: string", "T: type", stateful=True, shape_fn=common.scalar)
register_op("GetSessionHandleV2(value: T) -> handle: resource", "T: type", shape_fn=common.scalar)
register_op(
    "GetSessionTensor(handle: string) -> value: dtype",
    "dtype: type", stateful=True, shape_fn=shapes.first_scalar,
)
