"""Matrix products."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.math import math_shapes as shapes

register_op(
    "BatchMatMul(x: T, y: T) -> output: T",
    "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", "adj_x: bool = false",
    "adj_y: bool = false", "grad_x: bool = false", "grad_y: bool = false", shape_fn=shapes.batch_mat_mul,
)
register_op(
    "BatchMatMulV2(x: T, y: T) -> output: T",
    "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
    "adj_x: bool = false", "adj_y: bool = false", "grad_x: bool = false", "grad_y: bool = false",
    shape_fn=shapes.batch_mat_mul_v2,
)
register_op(
    "BatchMatMulV3(x: Ta, y: Tb) -> output: Tout",
    "Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}",
    "Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}",
    "Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}", "adj_x: bool = false",
    "adj_y: bool = false", "grad_x: bool = false", "grad_y: bool = false", shape_fn=shapes.batch_mat_mul_v2,
)
register_op("Einsum(inputs: N * T) -> output: T", "equation: string", "N: int", "T: type", shape_fn=shapes.einsum)
register_op(
    "MatMul(a: T, b: T) -> product: T",
    "transpose_a: bool = false", "transpose_b: bool = false",
    "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
    "grad_a: bool = false", "grad_b: bool = false", shape_fn=shapes.mat_mul,
)
register_op(
    "SparseMatMul(a: Ta, b: Tb) -> product: float",
    "transpose_a: bool = false", "transpose_b: bool = false", "a_is_sparse: bool = false", "b_is_sparse: bool = false",
    "Ta: {float, bfloat16} = float", "Tb: {float, bfloat16} = float", shape_fn=shapes.mat_mul,
)
register_op(
    "_FusedMatMul(a: T, b: T, args: num_args * T) -> product: T",
    "transpose_a: bool = false", "transpose_b: bool = false", "T: {bfloat16, half, float}", "num_args: int >= 0",
    "fused_ops: list(string) = []", "epsilon: float = 0.0001", "leakyrelu_alpha: float = 0.2", shape_fn=shapes.mat_mul,
)
