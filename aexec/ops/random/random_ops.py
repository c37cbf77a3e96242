"""Random numbers from generators that each kernel keeps."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.random import random_shapes as shapes

HALF_FIRST_FLOATS = "{half, bfloat16, float, double}"

register_op(
    "Multinomial(logits: T, num_samples: int32) -> output: output_dtype",
    "seed: int = 0", "seed2: int = 0", "T: realnumbertype", "output_dtype: {int32, int64} = int64", stateful=True,
    shape_fn=shapes.multinomial,
)
register_op(
    "ParameterizedTruncatedNormal(shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype) -> output: "
    "dtype",
    "seed: int = 0", "seed2: int = 0", f"dtype: {HALF_FIRST_FLOATS}", "T: {int32, int64}", stateful=True,
    shape_fn=shapes.parameterized_truncated_normal,
)
register_op(
    "RandomGamma(shape: S, alpha: T) -> output: T",
    "seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "T: {half, float, double}", stateful=True,
    shape_fn=shapes.per_parameter,
)
register_op("RandomGammaGrad(alpha: T, sample: T) -> output: T", "T: {float, double}", shape_fn=common.broadcast_binary)
register_op(
    "RandomIndexShuffle(index: dtype, seed: Tseed, max_index: dtype) -> output: dtype",
    "rounds: int = 4", "dtype: {int32, uint32, int64, uint64}", "Tseed: {int32, uint32, int64, uint64}",
    shape_fn=shapes.index_shuffle,
)
register_op(
    "RandomPoisson(shape: S, rate: dtype) -> output: dtype",
    "seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "dtype: {half, float, double}", stateful=True,
    deprecated=(25, "Replaced by RandomPoissonV2"), shape_fn=shapes.per_parameter,
)
register_op(
    "RandomPoissonV2(shape: S, rate: R) -> output: dtype",
    "seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "R: {half, float, double, int32, int64} = double",
    "dtype: {half, float, double, int32, int64} = int64", stateful=True, shape_fn=shapes.per_parameter,
)
register_op(
    "RandomShuffle(value: T) -> output: T",
    "seed: int = 0", "seed2: int = 0", "T: type", stateful=True, shape_fn=common.unchanged_shape,
)
register_op(
    "RandomStandardNormal(shape: T) -> output: dtype",
    "seed: int = 0", "seed2: int = 0", f"dtype: {HALF_FIRST_FLOATS}", "T: {int32, int64}", stateful=True,
    shape_fn=common.random_shape,
)
register_op(
    "RandomUniform(shape: T) -> output: dtype",
    "seed: int = 0", "seed2: int = 0", f"dtype: {HALF_FIRST_FLOATS}", "T: {int32, int64}", stateful=True,
    shape_fn=common.random_shape,
)
register_op(
    "RandomUniformInt(shape: T, minval: Tout, maxval: Tout) -> output: Tout",
    "seed: int = 0", "seed2: int = 0", "Tout: {int32, int64}", "T: {int32, int64}", stateful=True,
    shape_fn=shapes.uniform_int,
)
register_op(
    "TruncatedNormal(shape: T) -> output: dtype",
    "seed: int = 0", "seed2: int = 0", f"dtype: {HALF_FIRST_FLOATS}", "T: {int32, int64}", stateful=True,
    shape_fn=common.random_shape,
)
