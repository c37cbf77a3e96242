"""Special functions: error functions, gamma, beta, Bessel and others."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.math import math_shapes as shapes

FLOATS = "{bfloat16, half, float, double}"

register_op("BesselI0(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselI0e(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselI1(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselI1e(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselJ0(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselJ1(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselK0(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselK0e(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselK1(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselK1e(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselY0(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("BesselY1(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Betainc(a: T, b: T, x: T) -> z: T", "T: {float, double}", shape_fn=shapes.betainc)
register_op("Dawsn(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Digamma(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Erf(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Erfc(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Erfinv(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Expint(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("FresnelCos(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("FresnelSin(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Igamma(a: T, x: T) -> z: T", f"T: {FLOATS}", shape_fn=common.broadcast_binary)
register_op("IgammaGradA(a: T, x: T) -> z: T", "T: {float, double}", shape_fn=common.broadcast_binary)
register_op("Igammac(a: T, x: T) -> z: T", f"T: {FLOATS}", shape_fn=common.broadcast_binary)
register_op("Lgamma(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Ndtri(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Polygamma(a: T, x: T) -> z: T", "T: {float, double}", shape_fn=common.broadcast_binary)
register_op("Spence(x: T) -> y: T", f"T: {FLOATS}", shape_fn=common.unchanged_shape)
register_op("Zeta(x: T, q: T) -> z: T", "T: {float, double}", shape_fn=common.broadcast_binary)
