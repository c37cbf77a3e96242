"""Sequences, histograms, searches and other mathematics that is not elementwise."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.math import math_shapes as shapes

register_op(
    "Bincount(arr: int32, size: int32, weights: T) -> bins: T",
    "T: {int32, int64, float, double}", shape_fn=shapes.bincount,
)
register_op(
    "Bucketize(input: T) -> output: int32",
    "T: {int32, int64, float, double}", "boundaries: list(float)", shape_fn=common.unchanged_shape,
)
register_op("Cross(a: T, b: T) -> product: T", "T: realnumbertype", shape_fn=shapes.cross)
register_op(
    "DenseBincount(input: Tidx, size: Tidx, weights: T) -> output: T",
    "Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false",
    shape_fn=shapes.dense_bincount,
)
register_op(
    "HistogramFixedWidth(values: T, value_range: T, nbins: int32) -> out: dtype",
    "T: {int32, int64, float, double}", "dtype: {int32, int64} = int32", shape_fn=shapes.histogram_fixed_width,
)
register_op(
    "LinSpace(start: T, stop: T, num: Tidx) -> output: T",
    "T: {bfloat16, half, float, double}", "Tidx: {int32, int64} = int32", shape_fn=shapes.lin_space,
)
register_op(
    "LowerBound(sorted_inputs: T, values: T) -> output: out_type",
    "T: type", "out_type: {int32, int64} = int32", shape_fn=shapes.sorted_bound,
)
register_op("NextAfter(x1: T, x2: T) -> output: T", "T: {double, float} = float", shape_fn=common.broadcast_binary)
register_op(
    "Range(start: Tidx, limit: Tidx, delta: Tidx) -> output: Tidx",
    "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = int32",
    shape_fn=shapes.range_shape,
)
register_op(
    "SobolSample(dim: int32, num_results: int32, skip: int32) -> samples: dtype",
    "dtype: {float, double} = float", shape_fn=shapes.sobol_sample,
)
register_op(
    "UpperBound(sorted_inputs: T, values: T) -> output: out_type",
    "T: type", "out_type: {int32, int64} = int32", shape_fn=shapes.sorted_bound,
)
