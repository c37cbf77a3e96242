"""Random numbers from generators whose state is a variable."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.random import random_shapes as shapes

register_op(
    "NonDeterministicInts(shape: shape_dtype) -> output: dtype",
    "dtype: type = int64", "shape_dtype: type = int64", stateful=True, shape_fn=common.random_shape,
)
register_op(
    "RngReadAndSkip(resource: resource, alg: int32, delta: uint64) -> value: int64",
    shape_fn=shapes.read_and_skip,
)
register_op("RngSkip(resource: resource, algorithm: int64, delta: int64)", shape_fn=shapes.skip)
register_op(
    "StatefulRandomBinomial(resource: resource, algorithm: int64, shape: S, counts: T, probs: T) -> output: dtype",
    "S: {int32, int64}", "T: {half, float, double, int32, int64} = double",
    "dtype: {half, float, double, int32, int64} = int64", shape_fn=shapes.stateful_binomial,
)
register_op(
    "StatefulStandardNormal(resource: resource, shape: shape_dtype) -> output: dtype",
    "dtype: type = float", "shape_dtype: type = int64", deprecated=(29, "Use StatefulStandardNormalV2 instead"),
    shape_fn=shapes.stateful_v1,
)
register_op(
    "StatefulStandardNormalV2(resource: resource, algorithm: int64, shape: shape_dtype) -> output: dtype",
    "dtype: type = float", "shape_dtype: type = int64", shape_fn=shapes.stateful,
)
register_op(
    "StatefulTruncatedNormal(resource: resource, algorithm: int64, shape: shape_dtype) -> output: dtype",
    "dtype: type = float", "shape_dtype: type = int64", shape_fn=shapes.stateful,
)
register_op(
    "StatefulUniform(resource: resource, algorithm: int64, shape: shape_dtype) -> output: dtype",
    "dtype: type = float", "shape_dtype: type = int64", shape_fn=shapes.stateful,
)
register_op(
    "StatefulUniformFullInt(resource: resource, algorithm: int64, shape: shape_dtype) -> output: dtype",
    "dtype: type = uint64", "shape_dtype: type = int64", shape_fn=shapes.stateful,
)
register_op(
    "StatefulUniformInt(resource: resource, algorithm: int64, shape: shape_dtype, minval: dtype, maxval: dtype) -> "
    "output: dtype",
    "dtype: type = int64", "shape_dtype: type = int64", shape_fn=shapes.stateful_uniform_int,
)
