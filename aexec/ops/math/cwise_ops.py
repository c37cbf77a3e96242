"""Elementwise mathematics: unary, binary, comparisons, logic, casts, selection."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.math import math_shapes as shapes

FLOATS = "{bfloat16, half, float, double}"
FLOATS_AND_COMPLEX = "{bfloat16, half, float, double, complex64, complex128}"
HALF_FIRST_FLOATS_AND_COMPLEX = "{half, bfloat16, float, double, complex64, complex128}"
NUMBERS = (
    "{bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, "
    "complex128}"
)
SIGNED_NUMBERS = "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"

register_op(
    "Abs(x: T) -> y: T",
    "T: {bfloat16, half, float, double, int8, int16, int32, int64}", shape_fn=common.unchanged_shape,
)
register_op(
    "AccumulateNV2(inputs: N * T) -> sum: T",
    "N: int", "T: numbertype", "shape: shape", commutative=True, aggregate=True, shape_fn=common.explicit_shape,
)
register_op("Acos(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Acosh(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op(
    "Add(x: T, y: T) -> z: T",
    "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string}",
    shape_fn=common.broadcast_binary,
)
register_op(
    "AddN(inputs: N * T) -> sum: T",
    "N: int", "T: {numbertype, variant}", commutative=True, aggregate=True, shape_fn=shapes.add_n,
)
register_op(
    "AddV2(x: T, y: T) -> z: T",
    "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, complex64, "
    "complex128}",
    commutative=True, aggregate=True, shape_fn=common.broadcast_binary,
)
register_op(
    "Angle(input: T) -> output: Tout",
    "T: {complex64, complex128} = complex64", "Tout: {float, double} = float", shape_fn=common.unchanged_shape,
)
register_op(
    "ApproximateEqual(x: T, y: T) -> z: bool",
    "T: numbertype", "tolerance: float = 1e-05", commutative=True, shape_fn=shapes.approximate_equal,
)
register_op("Asin(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Asinh(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Atan(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Atan2(y: T, x: T) -> z: T", f"T: {FLOATS}", shape_fn=common.broadcast_binary)
register_op("Atanh(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op(
    "Bitcast(input: T) -> output: type",
    "T: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, "
    "complex128, qint8, quint8, qint16, quint16, qint32}",
    "type: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, "
    "complex128, qint8, quint8, qint16, quint16, qint32}",
    shape_fn=shapes.bitcast,
)
register_op(
    "Cast(x: SrcT) -> y: DstT",
    "SrcT: type", "DstT: type", "Truncate: bool = false", shape_fn=common.unchanged_shape,
)
register_op("Ceil(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op(
    "ClipByValue(t: T, clip_value_min: T, clip_value_max: T) -> output: T",
    "T: numbertype", shape_fn=common.unchanged_shape,
)
register_op(
    "Complex(real: T, imag: T) -> out: Tout",
    "T: {float, double} = float", "Tout: {complex64, complex128} = complex64", shape_fn=common.broadcast_binary,
)
register_op(
    "ComplexAbs(x: T) -> y: Tout",
    "T: {complex64, complex128} = complex64", "Tout: {float, double} = float", shape_fn=common.unchanged_shape,
)
register_op(
    "Conj(input: T) -> output: T",
    "T: {complex64, complex128, variant} = complex64", shape_fn=common.unchanged_shape,
)
register_op("Cos(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Cosh(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Div(x: T, y: T) -> z: T", f"T: {NUMBERS}", shape_fn=common.broadcast_binary)
register_op(
    "DivNoNan(x: T, y: T) -> z: T",
    "T: {half, float, bfloat16, double, complex64, complex128}", shape_fn=common.broadcast_binary,
)
register_op(
    "Equal(x: T, y: T) -> z: bool",
    "T: type", "incompatible_shape_error: bool = true", commutative=True, shape_fn=common.broadcast_binary,
)
register_op("Exp(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Expm1(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Floor(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("FloorDiv(x: T, y: T) -> z: T", f"T: {NUMBERS}", shape_fn=common.broadcast_binary)
register_op(
    "FloorMod(x: T, y: T) -> z: T",
    "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}",
    shape_fn=common.broadcast_binary,
)
register_op("Greater(x: T, y: T) -> z: bool", "T: realnumbertype", shape_fn=common.broadcast_binary)
register_op("GreaterEqual(x: T, y: T) -> z: bool", "T: realnumbertype", shape_fn=common.broadcast_binary)
register_op(
    "Imag(input: T) -> output: Tout",
    "T: {complex64, complex128} = complex64", "Tout: {float, double} = float", shape_fn=common.unchanged_shape,
)
register_op("Inv(x: T) -> y: T", f"T: {SIGNED_NUMBERS}", shape_fn=common.unchanged_shape)
register_op("InvGrad(y: T, dy: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("IsFinite(x: T) -> y: bool", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("IsInf(x: T) -> y: bool", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("IsNan(x: T) -> y: bool", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Less(x: T, y: T) -> z: bool", "T: realnumbertype", shape_fn=common.broadcast_binary)
register_op("LessEqual(x: T, y: T) -> z: bool", "T: realnumbertype", shape_fn=common.broadcast_binary)
register_op("Log(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Log1p(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("LogicalAnd(x: bool, y: bool) -> z: bool", commutative=True, shape_fn=common.broadcast_binary)
register_op("LogicalNot(x: bool) -> y: bool", shape_fn=common.unchanged_shape)
register_op("LogicalOr(x: bool, y: bool) -> z: bool", commutative=True, shape_fn=common.broadcast_binary)
register_op(
    "Maximum(x: T, y: T) -> z: T",
    "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}",
    shape_fn=common.broadcast_binary,
)
register_op(
    "Minimum(x: T, y: T) -> z: T",
    "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}",
    shape_fn=common.broadcast_binary,
)
register_op(
    "Mod(x: T, y: T) -> z: T",
    "T: {int32, int64, half, half, bfloat16, float, double}", shape_fn=common.broadcast_binary,
)
register_op("Mul(x: T, y: T) -> z: T", f"T: {NUMBERS}", commutative=True, shape_fn=common.broadcast_binary)
register_op("MulNoNan(x: T, y: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.broadcast_binary)
register_op("Neg(x: T) -> y: T", f"T: {SIGNED_NUMBERS}", shape_fn=common.unchanged_shape)
register_op(
    "NotEqual(x: T, y: T) -> z: bool",
    "T: type", "incompatible_shape_error: bool = true", commutative=True, shape_fn=common.broadcast_binary,
)
register_op(
    "Pow(x: T, y: T) -> z: T",
    "T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}",
    shape_fn=common.broadcast_binary,
)
register_op(
    "Real(input: T) -> output: Tout",
    "T: {complex64, complex128} = complex64", "Tout: {float, double} = float", shape_fn=common.unchanged_shape,
)
register_op("RealDiv(x: T, y: T) -> z: T", f"T: {NUMBERS}", shape_fn=common.broadcast_binary)
register_op("Reciprocal(x: T) -> y: T", f"T: {SIGNED_NUMBERS}", shape_fn=common.unchanged_shape)
register_op("ReciprocalGrad(y: T, dy: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Rint(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Round(x: T) -> y: T", f"T: {SIGNED_NUMBERS}", shape_fn=common.unchanged_shape)
register_op("Rsqrt(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("RsqrtGrad(y: T, dy: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Select(condition: bool, t: T, e: T) -> output: T", "T: type", shape_fn=shapes.select)
register_op("SelectV2(condition: bool, t: T, e: T) -> output: T", "T: type", shape_fn=shapes.select_v2)
register_op("Sigmoid(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("SigmoidGrad(y: T, dy: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Sign(x: T) -> y: T", f"T: {SIGNED_NUMBERS}", shape_fn=common.unchanged_shape)
register_op("Sin(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Sinh(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Sqrt(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("SqrtGrad(y: T, dy: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op(
    "Square(x: T) -> y: T",
    "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, "
    "complex128}",
    shape_fn=common.unchanged_shape,
)
register_op(
    "SquaredDifference(x: T, y: T) -> z: T",
    "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", commutative=True,
    shape_fn=common.broadcast_binary,
)
register_op(
    "Sub(x: T, y: T) -> z: T",
    "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, complex128, uint32, "
    "uint64}",
    shape_fn=common.broadcast_binary,
)
register_op("Tan(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("Tanh(x: T) -> y: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("TanhGrad(y: T, dy: T) -> z: T", f"T: {FLOATS_AND_COMPLEX}", shape_fn=common.unchanged_shape)
register_op("TruncateDiv(x: T, y: T) -> z: T", f"T: {NUMBERS}", shape_fn=common.broadcast_binary)
register_op(
    "TruncateMod(x: T, y: T) -> z: T",
    "T: {int32, int64, bfloat16, half, float, double}", shape_fn=common.broadcast_binary,
)
register_op("Xdivy(x: T, y: T) -> z: T", f"T: {HALF_FIRST_FLOATS_AND_COMPLEX}", shape_fn=common.broadcast_binary)
register_op("Xlog1py(x: T, y: T) -> z: T", f"T: {HALF_FIRST_FLOATS_AND_COMPLEX}", shape_fn=common.broadcast_binary)
register_op("Xlogy(x: T, y: T) -> z: T", f"T: {HALF_FIRST_FLOATS_AND_COMPLEX}", shape_fn=common.broadcast_binary)
register_op(
    "_HostCast(x: SrcT) -> y: DstT",
    "SrcT: type", "DstT: type", "Truncate: bool = false", shape_fn=common.unchanged_shape,
)
register_op(
    "_UnaryOpsComposition(x: T) -> y: T",
    "T: {float, half, double}", "op_names: list(string)", shape_fn=common.unchanged_shape,
)
