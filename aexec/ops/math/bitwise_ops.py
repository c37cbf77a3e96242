"""Bitwise operations on integers."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common

INTEGERS = "{int8, int16, int32, int64, uint8, uint16, uint32, uint64}"

register_op("BitwiseAnd(x: T, y: T) -> z: T", f"T: {INTEGERS}", commutative=True, shape_fn=common.broadcast_binary)
register_op("BitwiseOr(x: T, y: T) -> z: T", f"T: {INTEGERS}", commutative=True, shape_fn=common.broadcast_binary)
register_op("BitwiseXor(x: T, y: T) -> z: T", f"T: {INTEGERS}", commutative=True, shape_fn=common.broadcast_binary)
register_op("Invert(x: T) -> y: T", f"T: {INTEGERS}", shape_fn=common.unchanged_shape)
register_op("LeftShift(x: T, y: T) -> z: T", f"T: {INTEGERS}", shape_fn=common.broadcast_binary)
register_op("PopulationCount(x: T) -> y: uint8", f"T: {INTEGERS}", shape_fn=common.unchanged_shape)
register_op("RightShift(x: T, y: T) -> z: T", f"T: {INTEGERS}", shape_fn=common.broadcast_binary)
