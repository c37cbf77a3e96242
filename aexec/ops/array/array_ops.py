"""Constants, placeholders, identities, and ops on the shape and layout of arrays."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.array import array_shapes as shapes

register_op("BroadcastArgs(s0: T, s1: T) -> r0: T", "T: {int32, int64} = int32", shape_fn=shapes.broadcast_args)
register_op(
    "BroadcastGradientArgs(s0: T, s1: T) -> r0: T, r1: T",
    "T: {int32, int64} = int32", shape_fn=shapes.broadcast_gradient_args,
)
register_op(
    "BroadcastTo(input: T, shape: Tidx) -> output: T",
    "T: type", "Tidx: {int32, int64} = int32", shape_fn=shapes.broadcast_to,
)
register_op(
    "CheckNumerics(tensor: T) -> output: T",
    "T: {bfloat16, half, float, double}", "message: string", stateful=True, shape_fn=common.unchanged_shape,
)
register_op(
    "CheckNumericsV2(tensor: T) -> output: T",
    "T: {bfloat16, half, float, double}", "message: string", stateful=True, shape_fn=common.unchanged_shape,
)
register_op("Concat(concat_dim: int32, values: N * T) -> output: T", "N: int >= 2", "T: type", shape_fn=common.concat)
register_op(
    "ConcatOffset(concat_dim: int32, shape: N * shape_type) -> offset: N * shape_type",
    "N: int >= 2", "shape_type: {int32, int64} = int32", shape_fn=shapes.concat_offset,
)
register_op(
    "ConcatV2(values: N * T, axis: Tidx) -> output: T",
    "N: int >= 2", "T: type", "Tidx: {int32, int64} = int32", shape_fn=common.concat_v2,
)
register_op(
    "ConjugateTranspose(x: T, perm: Tperm) -> y: T",
    "T: type", "Tperm: {int32, int64} = int32", shape_fn=shapes.transpose,
)
register_op("Const() -> output: dtype", "value: tensor", "dtype: type", shape_fn=shapes.const)
register_op(
    "Copy(input: T) -> output: T",
    "T: type", "tensor_name: string = ''", "debug_ops_spec: list(string) = []",
    allows_uninitialized_input=True, shape_fn=common.unchanged_shape,
)
register_op(
    "CopyHost(input: T) -> output: T",
    "T: type", "tensor_name: string = ''", "debug_ops_spec: list(string) = []",
    allows_uninitialized_input=True, shape_fn=common.unchanged_shape,
)
register_op(
    "DebugGradientIdentity(input: T) -> output: T",
    "T: type", allows_uninitialized_input=True, shape_fn=common.unchanged_shape,
)
register_op(
    "DebugGradientRefIdentity(input: Ref(T)) -> output: Ref(T)",
    "T: type", allows_uninitialized_input=True, shape_fn=common.unchanged_shape,
)
register_op("DeepCopy(x: T) -> y: T", "T: type", stateful=True, shape_fn=common.unchanged_shape)
register_op(
    "EditDistance(hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, truth_indices: int64, "
    "truth_values: T, truth_shape: int64) -> output: float",
    "normalize: bool = true", "T: type", shape_fn=shapes.edit_distance,
)
register_op(
    "Empty(shape: int32) -> output: dtype",
    "dtype: type", "init: bool = false", stateful=True, shape_fn=shapes.empty,
)
register_op("EnsureShape(input: T) -> output: T", "shape: shape", "T: type", shape_fn=shapes.ensure_shape)
register_op(
    "ExpandDims(input: T, dim: Tdim) -> output: T",
    "T: type", "Tdim: {int32, int64} = int32", shape_fn=shapes.expand_dims,
)
register_op(
    "Fill(dims: index_type, value: T) -> output: T",
    "T: type", "index_type: {int32, int64} = int32", shape_fn=shapes.fill,
)
register_op("Fingerprint(data: T, method: string) -> fingerprint: uint8", "T: type", shape_fn=shapes.fingerprint)
register_op("GuaranteeConst(input: T) -> output: T", "T: type", stateful=True, shape_fn=common.unchanged_shape)
register_op("HostConst() -> output: dtype", "value: tensor", "dtype: type", shape_fn=shapes.const)
register_op("Identity(input: T) -> output: T", "T: type", shape_fn=common.unchanged_shape)
register_op("IdentityN(input: T) -> output: T", "T: list(type)", shape_fn=shapes.identity_n)
register_op(
    "ImmutableConst() -> tensor: dtype",
    "dtype: type", "shape: shape", "memory_region_name: string", shape_fn=common.explicit_shape,
)
register_op("InvertPermutation(x: T) -> y: T", "T: {int32, int64} = int32", shape_fn=common.unchanged_vector)
register_op(
    "ListDiff(x: T, y: T) -> out: T, idx: out_idx",
    "T: type", "out_idx: {int32, int64} = int32", shape_fn=shapes.list_diff,
)
register_op(
    "MirrorPad(input: T, paddings: Tpaddings) -> output: T",
    "T: type", "Tpaddings: {int32, int64} = int32", "mode: {'REFLECT', 'SYMMETRIC'}", shape_fn=shapes.pad,
)
register_op(
    "MirrorPadGrad(input: T, paddings: Tpaddings) -> output: T",
    "T: type", "Tpaddings: {int32, int64} = int32", "mode: {'REFLECT', 'SYMMETRIC'}", shape_fn=shapes.mirror_pad_grad,
)
register_op(
    "OneHot(indices: TI, depth: int32, on_value: T, off_value: T) -> output: T",
    "axis: int = -1", "T: type", "TI: {uint8, int8, int32, int64} = int64", shape_fn=shapes.one_hot,
)
register_op(
    "OnesLike(x: T) -> y: T",
    "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, complex64, "
    "complex128, bool}",
    shape_fn=common.unchanged_shape,
)
register_op("Pack(values: N * T) -> output: T", "N: int", "T: type", "axis: int = 0", shape_fn=shapes.pack)
register_op(
    "Pad(input: T, paddings: Tpaddings) -> output: T",
    "T: type", "Tpaddings: {int32, int64} = int32", shape_fn=shapes.pad,
)
register_op(
    "PadV2(input: T, paddings: Tpaddings, constant_values: T) -> output: T",
    "T: type", "Tpaddings: {int32, int64} = int32", shape_fn=shapes.pad,
)
register_op(
    "ParallelConcat(values: N * T) -> output: T",
    "N: int", "T: type", "shape: shape", shape_fn=shapes.parallel_concat,
)
register_op(
    "Placeholder() -> output: dtype",
    "dtype: type", "shape: shape = {unknown_rank: true}", shape_fn=shapes.placeholder,
)
register_op(
    "PlaceholderV2() -> output: dtype",
    "dtype: type", "shape: shape", deprecated=(23, "Placeholder now behaves the same as PlaceholderV2."),
    shape_fn=common.explicit_shape,
)
register_op(
    "PlaceholderWithDefault(input: dtype) -> output: dtype",
    "dtype: type", "shape: shape", shape_fn=shapes.placeholder_with_default,
)
register_op(
    "PreventGradient(input: T) -> output: T",
    "T: type", "message: string = ''", shape_fn=common.unchanged_shape,
)
register_op("Rank(input: T) -> output: int32", "T: type", shape_fn=common.scalar)
register_op(
    "RefIdentity(input: Ref(T)) -> output: Ref(T)",
    "T: type", allows_uninitialized_input=True, shape_fn=common.unchanged_shape,
)
register_op(
    "Reshape(tensor: T, shape: Tshape) -> output: T",
    "T: type", "Tshape: {int32, int64} = int32", shape_fn=shapes.reshape,
)
register_op(
    "Reverse(tensor: T, dims: bool) -> output: T",
    "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, bool, bfloat16, half, float, double, "
    "complex64, complex128, string}",
    shape_fn=shapes.reverse,
)
register_op(
    "ReverseSequence(input: T, seq_lengths: Tlen) -> output: T",
    "seq_dim: int", "batch_dim: int = 0", "T: type", "Tlen: {int32, int64} = int64", shape_fn=shapes.reverse_sequence,
)
register_op(
    "ReverseV2(tensor: T, axis: Tidx) -> output: T",
    "Tidx: {int32, int64} = int32",
    "T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, float, double, "
    "complex64, complex128, string}",
    shape_fn=shapes.reverse_v2,
)
register_op(
    "Roll(input: T, shift: Tshift, axis: Taxis) -> output: T",
    "T: type", "Tshift: {int32, int64}", "Taxis: {int32, int64}", shape_fn=shapes.roll,
)
register_op(
    "Shape(input: T) -> output: out_type",
    "T: type", "out_type: {int32, int64} = int32", shape_fn=shapes.shape_of,
)
register_op(
    "ShapeN(input: N * T) -> output: N * out_type",
    "N: int", "T: type", "out_type: {int32, int64} = int32", shape_fn=shapes.shape_of,
)
register_op("Size(input: T) -> output: out_type", "T: type", "out_type: {int32, int64} = int32", shape_fn=common.scalar)
register_op("Snapshot(input: T) -> output: T", "T: type", shape_fn=common.unchanged_shape)
register_op(
    "Split(split_dim: int32, value: T) -> output: num_split * T",
    "num_split: int", "T: type", shape_fn=shapes.split,
)
register_op(
    "SplitV(value: T, size_splits: Tlen, split_dim: int32) -> output: num_split * T",
    "num_split: int", "T: type", "Tlen: {int8, int32, int64} = int64", shape_fn=shapes.split_v,
)
register_op("Squeeze(input: T) -> output: T", "T: type", "squeeze_dims: list(int) >= 0 = []", shape_fn=shapes.squeeze)
register_op("StopGradient(input: T) -> output: T", "T: type", shape_fn=common.unchanged_shape)
register_op(
    "Tile(input: T, multiples: Tmultiples) -> output: T",
    "T: type", "Tmultiples: {int32, int64} = int32", shape_fn=shapes.tile,
)
register_op(
    "TileGrad(input: T, multiples: int32) -> output: T",
    "T: type", deprecated=(3, "TileGrad has been replaced with reduce_sum"), shape_fn=common.unknown_shape,
)
register_op(
    "Transpose(x: T, perm: Tperm) -> y: T",
    "T: type", "Tperm: {int32, int64} = int32", shape_fn=shapes.transpose,
)
register_op("Unique(x: T) -> y: T, idx: out_idx", "T: type", "out_idx: {int32, int64} = int32", shape_fn=shapes.unique)
register_op(
    "UniqueV2(x: T, axis: Taxis) -> y: T, idx: out_idx",
    "T: type", "Taxis: {int32, int64} = int64", "out_idx: {int32, int64} = int32", shape_fn=shapes.unique_v2,
)
register_op(
    "UniqueWithCounts(x: T) -> y: T, idx: out_idx, count: out_idx",
    "T: type", "out_idx: {int32, int64} = int32", shape_fn=shapes.unique_with_counts,
)
register_op(
    "UniqueWithCountsV2(x: T, axis: Taxis) -> y: T, idx: out_idx, count: out_idx",
    "T: type", "Taxis: {int32, int64} = int64", "out_idx: {int32, int64} = int32", shape_fn=shapes.unique_v2,
)
register_op("Unpack(value: T) -> output: num * T", "num: int >= 0", "T: type", "axis: int = 0", shape_fn=shapes.unpack)
register_op(
    "UnravelIndex(indices: Tidx, dims: Tidx) -> output: Tidx",
    "Tidx: {int32, int64} = int32", shape_fn=shapes.unravel_index,
)
register_op("Where(input: T) -> index: int64", "T: {numbertype, bool} = bool", shape_fn=shapes.where)
register_op("ZerosLike(x: T) -> y: T", "T: type", shape_fn=common.unchanged_shape)
register_op("_EagerConst(input: T) -> output: T", "T: type", shape_fn=common.unchanged_shape)
register_op("_ParallelConcatStart() -> output: dtype", "shape: shape", "dtype: type", stateful=True)
register_op("_ParallelConcatUpdate(value: T, update: T) -> output: T", "T: type", "loc: int")
