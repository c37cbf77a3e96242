"""Reductions and cumulative sums along axes."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.math import math_shapes as shapes

register_op(
    "All(input: bool, reduction_indices: Tidx) -> output: bool",
    "keep_dims: bool = false", "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "Any(input: bool, reduction_indices: Tidx) -> output: bool",
    "keep_dims: bool = false", "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "ArgMax(input: T, dimension: Tidx) -> output: output_type",
    "T: {realnumbertype, qint8, quint8, qint32, qint16, quint16, bool}", "Tidx: {int16, int32, int64} = int32",
    "output_type: {int16, uint16, int32, int64} = int64", shape_fn=shapes.arg_reduction,
)
register_op(
    "ArgMin(input: T, dimension: Tidx) -> output: output_type",
    "T: {realnumbertype, qint8, quint8, qint32, qint16, quint16, bool}", "Tidx: {int32, int64} = int32",
    "output_type: {int32, int64} = int64", shape_fn=shapes.arg_reduction,
)
register_op(
    "Cumprod(x: T, axis: Tidx) -> out: T",
    "exclusive: bool = false", "reverse: bool = false", "T: numbertype", "Tidx: {int32, int64} = int32",
    shape_fn=common.unchanged_shape,
)
register_op(
    "Cumsum(x: T, axis: Tidx) -> out: T",
    "exclusive: bool = false", "reverse: bool = false", "T: numbertype", "Tidx: {int32, int64} = int32",
    shape_fn=common.unchanged_shape,
)
register_op(
    "CumulativeLogsumexp(x: T, axis: Tidx) -> out: T",
    "exclusive: bool = false", "reverse: bool = false", "T: {bfloat16, half, float, double}",
    "Tidx: {int32, int64} = int32", shape_fn=common.unchanged_shape,
)
register_op(
    "EuclideanNorm(input: T, reduction_indices: Tidx) -> output: T",
    "keep_dims: bool = false", "T: numbertype", "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op("L2Loss(t: T) -> output: T", "T: {half, bfloat16, float, double}", shape_fn=common.scalar)
register_op(
    "Max(input: T, reduction_indices: Tidx) -> output: T",
    "keep_dims: bool = false", "T: {realnumbertype, qint8, quint8, qint32, qint16, quint16}",
    "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "Mean(input: T, reduction_indices: Tidx) -> output: T",
    "keep_dims: bool = false", "T: numbertype", "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "Min(input: T, reduction_indices: Tidx) -> output: T",
    "keep_dims: bool = false", "T: {realnumbertype, qint8, quint8, qint32, qint16, quint16}",
    "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "Prod(input: T, reduction_indices: Tidx) -> output: T",
    "keep_dims: bool = false", "T: numbertype", "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "Sum(input: T, reduction_indices: Tidx) -> output: T",
    "keep_dims: bool = false", "T: numbertype", "Tidx: {int32, int64} = int32", shape_fn=common.reduction,
)
register_op(
    "_SumToShape(input: T, shape: Tshape, other: Tshape) -> output: T",
    "second: bool = false", "T: numbertype", "Tshape: {int32, int64} = int32", shape_fn=shapes.sum_to_shape,
)
