"""Random numbers that seeds or keys and counters determine."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.random import random_shapes as shapes

HALF_FIRST_FLOATS = "{half, bfloat16, float, double}"
RANDOM_TYPES = "{half, float, double, int32, int64}"
WIDE_INTEGERS = "{int32, int64, uint32, uint64}"

register_op(
    "StatelessMultinomial(logits: T, num_samples: int32, seed: Tseed) -> output: output_dtype",
    "T: realnumbertype", "Tseed: {int32, int64} = int64", "output_dtype: {int32, int64} = int64",
    shape_fn=shapes.multinomial,
)
register_op(
    "StatelessParameterizedTruncatedNormal(shape: S, seed: Tseed, means: dtype, stddevs: dtype, minvals: dtype, "
    "maxvals: dtype) -> output: dtype",
    "S: {int32, int64}", "Tseed: {int32, int64} = int64", "dtype: {half, float, double}",
    shape_fn=shapes.stateless_truncated_normal,
)
register_op(
    "StatelessRandomBinomial(shape: S, seed: Tseed, counts: T, probs: T) -> output: dtype",
    "S: {int32, int64}", "Tseed: {int32, int64} = int64", f"T: {RANDOM_TYPES} = double",
    f"dtype: {RANDOM_TYPES} = int64", shape_fn=shapes.stateless,
)
register_op(
    "StatelessRandomGammaV2(shape: T, seed: Tseed, alpha: dtype) -> output: dtype",
    "dtype: {half, float, double}", "T: {int32, int64}", "Tseed: {int32, int64} = int64", shape_fn=shapes.stateless,
)
register_op(
    "StatelessRandomGammaV3(shape: shape_dtype, key: uint64, counter: uint64, alg: int32, alpha: dtype) -> output: "
    "dtype",
    "dtype: {half, float, double}", "shape_dtype: {int32, int64} = int32", shape_fn=shapes.stateless_with_key,
)
register_op("StatelessRandomGetAlg() -> alg: int32", stateful=True, shape_fn=common.scalar)
register_op(
    "StatelessRandomGetKeyCounter(seed: Tseed) -> key: uint64, counter: uint64",
    "Tseed: {int32, int64} = int64", shape_fn=shapes.key_and_counter,
)
register_op(
    "StatelessRandomGetKeyCounterAlg(seed: Tseed) -> key: uint64, counter: uint64, alg: int32",
    "Tseed: {int32, int64} = int64", shape_fn=shapes.key_and_counter,
)
register_op(
    "StatelessRandomNormal(shape: T, seed: Tseed) -> output: dtype",
    f"dtype: {HALF_FIRST_FLOATS} = float", "T: {int32, int64} = int32", "Tseed: {int32, int64} = int64",
    shape_fn=shapes.stateless,
)
register_op(
    "StatelessRandomNormalV2(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> output: dtype",
    f"dtype: {HALF_FIRST_FLOATS} = float", "Tshape: {int32, int64} = int32", shape_fn=shapes.stateless_with_key,
)
register_op(
    "StatelessRandomPoisson(shape: T, seed: Tseed, lam: Rtype) -> output: dtype",
    f"Rtype: {RANDOM_TYPES}", f"dtype: {RANDOM_TYPES}", "T: {int32, int64}", "Tseed: {int32, int64} = int64",
    shape_fn=shapes.stateless,
)
register_op(
    "StatelessRandomUniform(shape: T, seed: Tseed) -> output: dtype",
    f"dtype: {HALF_FIRST_FLOATS} = float", "T: {int32, int64} = int32", "Tseed: {int32, int64} = int64",
    shape_fn=shapes.stateless,
)
register_op(
    "StatelessRandomUniformFullInt(shape: T, seed: Tseed) -> output: dtype",
    f"dtype: {WIDE_INTEGERS} = uint64", "T: {int32, int64} = int32", f"Tseed: {WIDE_INTEGERS} = int64",
    shape_fn=shapes.stateless,
)
register_op(
    "StatelessRandomUniformFullIntV2(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> output: dtype",
    f"dtype: {WIDE_INTEGERS} = uint64", "Tshape: {int32, int64} = int32", shape_fn=shapes.stateless_with_key,
)
register_op(
    "StatelessRandomUniformInt(shape: T, seed: Tseed, minval: dtype, maxval: dtype) -> output: dtype",
    "dtype: {int32, int64}", "T: {int32, int64}", "Tseed: {int32, int64} = int64",
    shape_fn=shapes.stateless_uniform_int,
)
register_op(
    "StatelessRandomUniformIntV2(shape: Tshape, key: uint64, counter: uint64, alg: int32, minval: dtype, maxval: "
    "dtype) -> output: dtype",
    f"dtype: {WIDE_INTEGERS}", "Tshape: {int32, int64} = int32", shape_fn=shapes.stateless_uniform_int_with_key,
)
register_op(
    "StatelessRandomUniformV2(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> output: dtype",
    f"dtype: {HALF_FIRST_FLOATS} = float", "Tshape: {int32, int64} = int32", shape_fn=shapes.stateless_with_key,
)
register_op(
    "StatelessShuffle(value: T, key: uint64, counter: uint64, alg: int32) -> output: T",
    "T: type", shape_fn=common.unchanged_shape,
)
register_op(
    "StatelessTruncatedNormal(shape: T, seed: Tseed) -> output: dtype",
    f"dtype: {HALF_FIRST_FLOATS} = float", "T: {int32, int64} = int32", "Tseed: {int32, int64} = int64",
    shape_fn=shapes.stateless,
)
register_op(
    "StatelessTruncatedNormalV2(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> output: dtype",
    f"dtype: {HALF_FIRST_FLOATS} = float", "Tshape: {int32, int64} = int32", shape_fn=shapes.stateless_with_key,
)
