"""Biases, normalisations, losses and top-k of neural networks."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.nn import nn_shapes as shapes
from aexec.ops.nn import window_shapes as nn

BATCH_NORM_FORMATS = "{'NHWC', 'NCHW', 'NDHWC', 'NCDHW'}"
HALF_FIRST_FLOATS = "{half, bfloat16, float, double}"

register_op(
    "ApproxTopK(input: T) -> values: T, indices: int32",
    "k: int >= 0", "reduction_dimension: int = -1", "recall_target: float = 0.95", "is_max_k: bool = true",
    "reduction_input_size_override: int = -1", "aggregate_to_topk: bool = true", "T: {half, bfloat16, float}",
)
register_op(
    "BatchNormWithGlobalNormalization(t: T, m: T, v: T, beta: T, gamma: T) -> result: T",
    "T: numbertype", "variance_epsilon: float", "scale_after_normalization: bool",
    deprecated=(9, "Use tf.nn.batch_normalization()"), shape_fn=shapes.batch_norm_global,
)
register_op(
    "BatchNormWithGlobalNormalizationGrad(t: T, m: T, v: T, gamma: T, backprop: T) -> dx: T, dm: T, dv: T, db: T, "
    "dg: T",
    "T: numbertype", "variance_epsilon: float", "scale_after_normalization: bool",
    deprecated=(9, "Use tf.nn.batch_normalization()"), shape_fn=shapes.batch_norm_global_grad,
)
register_op(
    "BiasAdd(value: T, bias: T) -> output: T",
    "T: numbertype", "data_format: {'NHWC', 'NCHW'} = 'NHWC'", shape_fn=common.bias_add,
)
register_op(
    "BiasAddGrad(out_backprop: T) -> output: T",
    "T: numbertype", "data_format: {'NHWC', 'NCHW'} = 'NHWC'", shape_fn=common.bias_add_grad,
)
register_op("BiasAddV1(value: T, bias: T) -> output: T", "T: numbertype", shape_fn=common.bias_add)
register_op(
    "DataFormatDimMap(x: T) -> y: T",
    "T: {int32, int64} = int32", "src_format: string = 'NHWC'", "dst_format: string = 'NCHW'",
    shape_fn=common.unchanged_shape,
)
register_op(
    "DataFormatVecPermute(x: T) -> y: T",
    "T: {int32, int64} = int32", "src_format: string = 'NHWC'", "dst_format: string = 'NCHW'",
    shape_fn=common.unchanged_shape,
)
register_op(
    "FusedBatchNorm(x: T, scale: T, offset: T, mean: T, variance: T) -> y: T, batch_mean: T, batch_variance: T, "
    "reserve_space_1: T, reserve_space_2: T",
    "T: {float}", "epsilon: float = 0.0001", "exponential_avg_factor: float = 1.0",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "is_training: bool = true", shape_fn=nn.fused_batch_norm,
)
register_op(
    "FusedBatchNormGrad(y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T) -> x_backprop: T, "
    "scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T",
    "T: {float}", "epsilon: float = 0.0001", "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "is_training: bool = true",
    shape_fn=nn.fused_batch_norm_grad,
)
register_op(
    "FusedBatchNormGradV2(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U) -> x_backprop: "
    "T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U",
    "T: {half, bfloat16, float}", "U: {float}", "epsilon: float = 0.0001", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "is_training: bool = true", shape_fn=nn.fused_batch_norm_grad,
)
register_op(
    "FusedBatchNormGradV3(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, "
    "reserve_space_3: U) -> x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, "
    "reserve_space_5: U",
    "T: {half, bfloat16, float}", "U: {float}", "epsilon: float = 0.0001",
    f"data_format: {BATCH_NORM_FORMATS} = 'NHWC'", "is_training: bool = true", shape_fn=nn.fused_batch_norm_grad,
)
register_op(
    "FusedBatchNormV2(x: T, scale: U, offset: U, mean: U, variance: U) -> y: T, batch_mean: U, batch_variance: U, "
    "reserve_space_1: U, reserve_space_2: U",
    "T: {half, bfloat16, float}", "U: {float}", "epsilon: float = 0.0001", "exponential_avg_factor: float = 1.0",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "is_training: bool = true", shape_fn=nn.fused_batch_norm,
)
register_op(
    "FusedBatchNormV3(x: T, scale: U, offset: U, mean: U, variance: U) -> y: T, batch_mean: U, batch_variance: U, "
    "reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
    "T: {half, bfloat16, float}", "U: {bfloat16, float}", "epsilon: float = 0.0001",
    "exponential_avg_factor: float = 1.0", f"data_format: {BATCH_NORM_FORMATS} = 'NHWC'", "is_training: bool = true",
    shape_fn=nn.fused_batch_norm,
)
register_op(
    "InTopK(predictions: float, targets: T) -> precision: bool",
    "k: int", "T: {int32, int64} = int32", shape_fn=shapes.in_top_k,
)
register_op(
    "InTopKV2(predictions: float, targets: T, k: T) -> precision: bool",
    "T: {int32, int64} = int32", shape_fn=shapes.in_top_k,
)
register_op(
    "IsotonicRegression(input: T) -> output: output_dtype, segments: int32",
    "T: realnumbertype", f"output_dtype: {HALF_FIRST_FLOATS} = float", shape_fn=shapes.isotonic_regression,
)
register_op(
    "LRN(input: T) -> output: T",
    "depth_radius: int = 5", "bias: float = 1.0", "alpha: float = 1.0", "beta: float = 0.5",
    "T: {half, bfloat16, float} = float", shape_fn=common.unchanged_image,
)
register_op(
    "LRNGrad(input_grads: T, input_image: T, output_image: T) -> output: T",
    "depth_radius: int = 5", "bias: float = 1.0", "alpha: float = 1.0", "beta: float = 0.5",
    "T: {half, bfloat16, float} = float", shape_fn=shapes.lrn_grad,
)
register_op(
    "NthElement(input: T, n: int32) -> values: T",
    "reverse: bool = false", "T: realnumbertype", shape_fn=shapes.nth_element,
)
register_op(
    "SoftmaxCrossEntropyWithLogits(features: T, labels: T) -> loss: T, backprop: T",
    f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.softmax_cross_entropy,
)
register_op(
    "SparseSoftmaxCrossEntropyWithLogits(features: T, labels: Tlabels) -> loss: T, backprop: T",
    f"T: {HALF_FIRST_FLOATS}", "Tlabels: {int32, int64} = int64", shape_fn=shapes.sparse_softmax_cross_entropy,
)
register_op(
    "TopK(input: T) -> values: T, indices: int32",
    "k: int >= 0", "sorted: bool = true", "T: realnumbertype", deprecated=(7, "Use TopKV2 instead"),
    shape_fn=shapes.top_k,
)
register_op(
    "TopKV2(input: T, k: Tk) -> values: T, indices: index_type",
    "sorted: bool = true", "T: realnumbertype", "Tk: {int16, int32, int64} = int32",
    "index_type: {int16, int32, int64} = int32", shape_fn=shapes.top_k,
)
register_op(
    "_FusedBatchNormEx(x: T, scale: U, offset: U, mean: U, variance: U, side_input: num_side_inputs * T) -> y: T, "
    "batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
    "T: {half, float, bfloat16}", "U: {float}", "epsilon: float = 0.0001", "exponential_avg_factor: float = 1.0",
    "num_side_inputs: int >= 0 = 0", "activation_mode: string = 'Identity'", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "is_training: bool = true", shape_fn=nn.fused_batch_norm_ex,
)
register_op(
    "_FusedBatchNormGradEx(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, "
    "reserve_space_3: U, offset: float, y: T) -> x_backprop: T, scale_backprop: U, offset_backprop: U, "
    "reserve_space_4: U, reserve_space_5: U, side_input_backprop: num_side_inputs * T",
    "T: {half, float}", "U: {float}", "epsilon: float = 0.0001", "num_side_inputs: int >= 0 = 0",
    "activation_mode: string = 'Identity'", f"data_format: {BATCH_NORM_FORMATS} = 'NHWC'", "is_training: bool = true",
)
