"""Quantised arithmetic, fake quantisation, and conversions to and from both."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.quantize import quantize_shapes as shapes

FLOATS = "{bfloat16, half, float, double}"

register_op(
    "Dequantize(input: T, min_range: float, max_range: float) -> output: dtype",
    "T: quantizedtype", "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'", "narrow_range: bool = false",
    "axis: int = -1", "dtype: {bfloat16, float} = float", shape_fn=shapes.range_scalars,
)
register_op(
    "FakeQuantWithMinMaxArgs(inputs: float) -> outputs: float",
    "min: float = -6.0", "max: float = 6.0", "num_bits: int = 8", "narrow_range: bool = false",
    shape_fn=common.unchanged_shape,
)
register_op(
    "FakeQuantWithMinMaxArgsGradient(gradients: float, inputs: float) -> backprops: float",
    "min: float = -6.0", "max: float = 6.0", "num_bits: int = 8", "narrow_range: bool = false",
    shape_fn=common.unchanged_shape,
)
register_op(
    "FakeQuantWithMinMaxVars(inputs: float, min: float, max: float) -> outputs: float",
    "num_bits: int = 8", "narrow_range: bool = false", shape_fn=shapes.fake_quant,
)
register_op(
    "FakeQuantWithMinMaxVarsGradient(gradients: float, inputs: float, min: float, max: float) -> "
    "backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float",
    "num_bits: int = 8", "narrow_range: bool = false", shape_fn=shapes.fake_quant_grad,
)
register_op(
    "FakeQuantWithMinMaxVarsPerChannel(inputs: float, min: float, max: float) -> outputs: float",
    "num_bits: int = 8", "narrow_range: bool = false", shape_fn=shapes.fake_quant_per_channel,
)
register_op(
    "FakeQuantWithMinMaxVarsPerChannelGradient(gradients: float, inputs: float, min: float, max: float) -> "
    "backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float",
    "num_bits: int = 8", "narrow_range: bool = false", shape_fn=shapes.fake_quant_per_channel_grad,
)
register_op(
    "QuantizeAndDequantize(input: T) -> output: T",
    "signed_input: bool = true", "num_bits: int = 8", "range_given: bool = false", "input_min: float = 0.0",
    "input_max: float = 0.0", f"T: {FLOATS}", deprecated=(22, "Replaced by QuantizeAndDequantizeV2"),
    shape_fn=common.unchanged_shape,
)
register_op(
    "QuantizeAndDequantizeV2(input: T, input_min: T, input_max: T) -> output: T",
    "signed_input: bool = true", "num_bits: int = 8", "range_given: bool = false", f"T: {FLOATS}",
    "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'", "narrow_range: bool = false", "axis: int = -1",
    shape_fn=shapes.quantize_and_dequantize,
)
register_op(
    "QuantizeAndDequantizeV3(input: T, input_min: T, input_max: T, num_bits: int32) -> output: T",
    "signed_input: bool = true", "range_given: bool = true", f"T: {FLOATS}", "narrow_range: bool = false",
    "axis: int = -1", shape_fn=shapes.quantize_and_dequantize,
)
register_op(
    "QuantizeAndDequantizeV4(input: T, input_min: T, input_max: T) -> output: T",
    "signed_input: bool = true", "num_bits: int = 8", "range_given: bool = false", f"T: {FLOATS}",
    "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'", "narrow_range: bool = false", "axis: int = -1",
    shape_fn=shapes.quantize_and_dequantize,
)
register_op(
    "QuantizeAndDequantizeV4Grad(gradients: T, input: T, input_min: T, input_max: T) -> input_backprop: T, "
    "input_min_backprop: T, input_max_backprop: T",
    f"T: {FLOATS}", "axis: int = -1", shape_fn=shapes.quantize_and_dequantize_grad,
)
register_op(
    "QuantizeDownAndShrinkRange(input: Tinput, input_min: float, input_max: float) -> output: out_type, output_min: "
    "float, output_max: float",
    "Tinput: quantizedtype", "out_type: quantizedtype", shape_fn=shapes.unchanged_with_range,
)
register_op(
    "QuantizeV2(input: float, min_range: float, max_range: float) -> output: T, output_min: float, output_max: float",
    "T: quantizedtype", "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'",
    "round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'", "narrow_range: bool = false",
    "axis: int = -1", "ensure_minimum_range: float = 0.01", shape_fn=shapes.quantize,
)
register_op(
    "QuantizedAdd(x: T1, y: T2, min_x: float, max_x: float, min_y: float, max_y: float) -> z: Toutput, min_z: "
    "float, max_z: float",
    "T1: quantizedtype", "T2: quantizedtype", "Toutput: quantizedtype = qint32", shape_fn=shapes.quantized_pair,
)
register_op(
    "QuantizedAvgPool(input: T, min_input: float, max_input: float) -> output: T, min_output: float, max_output: float",
    "T: quantizedtype", "ksize: list(int)", "strides: list(int)", "padding: {'SAME', 'VALID'}",
    shape_fn=shapes.quantized_avg_pool,
)
register_op(
    "QuantizedBatchNormWithGlobalNormalization(t: Tinput, t_min: float, t_max: float, m: Tinput, m_min: float, "
    "m_max: float, v: Tinput, v_min: float, v_max: float, beta: Tinput, beta_min: float, beta_max: float, gamma: "
    "Tinput, gamma_min: float, gamma_max: float) -> result: out_type, result_min: float, result_max: float",
    "Tinput: quantizedtype", "out_type: quantizedtype", "variance_epsilon: float", "scale_after_normalization: bool",
)
register_op(
    "QuantizedBiasAdd(input: T1, bias: T2, min_input: float, max_input: float, min_bias: float, max_bias: float) -> "
    "output: out_type, min_out: float, max_out: float",
    "T1: quantizedtype", "T2: quantizedtype", "out_type: quantizedtype", shape_fn=shapes.quantized_bias_add,
)
register_op(
    "QuantizedConcat(concat_dim: int32, values: N * T, input_mins: N * float, input_maxes: N * float) -> output: T, "
    "output_min: float, output_max: float",
    "N: int >= 2", "T: type", shape_fn=shapes.quantized_concat,
)
register_op(
    "QuantizedConv2D(input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: float, "
    "max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", shape_fn=shapes.quantized_conv_2d,
)
register_op(
    "QuantizedConv2DAndRelu(input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: float, "
    "max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DAndReluAndRequantize(input: Tinput, filter: Tfilter, min_input: float, max_input: float, "
    "min_filter: float, max_filter: float, min_freezed_output: float, max_freezed_output: float) -> output: "
    "out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = quint8", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DAndRequantize(input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: "
    "float, max_filter: float, min_freezed_output: float, max_freezed_output: float) -> output: out_type, "
    "min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint8", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DPerChannel(input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: "
    "float, max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]",
)
register_op(
    "QuantizedConv2DWithBias(input: Tinput, filter: Tfilter, bias: float, min_input: float, max_input: float, "
    "min_filter: float, max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DWithBiasAndRelu(input: Tinput, filter: Tfilter, bias: float, min_input: float, max_input: "
    "float, min_filter: float, max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DWithBiasAndReluAndRequantize(input: Tinput, filter: Tfilter, bias: Tbias, min_input: float, "
    "max_input: float, min_filter: float, max_filter: float, min_freezed_output: float, max_freezed_output: float) "
    "-> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "Tbias: {float, qint32}", "out_type: quantizedtype = quint8",
    "strides: list(int)", "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]",
    "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DWithBiasAndRequantize(input: Tinput, filter: Tfilter, bias: Tbias, min_input: float, max_input: "
    "float, min_filter: float, max_filter: float, min_freezed_output: float, max_freezed_output: float) -> output: "
    "out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "Tbias: {float, qint32}", "out_type: quantizedtype = qint8",
    "strides: list(int)", "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]",
    "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DWithBiasSignedSumAndReluAndRequantize(input: Tinput, filter: Tfilter, bias: Tbias, min_input: "
    "float, max_input: float, min_filter: float, max_filter: float, min_freezed_output: float, max_freezed_output: "
    "float, summand: Tsummand, min_summand: float, max_summand: float) -> output: out_type, min_output: float, "
    "max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "Tbias: {float, qint32}", "Tsummand: quantizedtype",
    "out_type: quantizedtype = quint8", "strides: list(int)", "padding: {'SAME', 'VALID'}",
    "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DWithBiasSumAndRelu(input: Tinput, filter: Tfilter, bias: float, min_input: float, max_input: "
    "float, min_filter: float, max_filter: float, summand: float) -> output: out_type, min_output: float, "
    "max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedConv2DWithBiasSumAndReluAndRequantize(input: Tinput, filter: Tfilter, bias: Tbias, min_input: float, "
    "max_input: float, min_filter: float, max_filter: float, min_freezed_output: float, max_freezed_output: float, "
    "summand: Tsummand, min_summand: float, max_summand: float) -> output: out_type, min_output: float, max_output: "
    "float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "Tbias: {float, qint32}", "Tsummand: quantizedtype",
    "out_type: quantizedtype = quint8", "strides: list(int)", "padding: {'SAME', 'VALID'}",
    "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedDepthwiseConv2D(input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: "
    "float, max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]",
)
register_op(
    "QuantizedDepthwiseConv2DWithBias(input: Tinput, filter: Tfilter, bias: float, min_input: float, max_input: "
    "float, min_filter: float, max_filter: float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]",
)
register_op(
    "QuantizedDepthwiseConv2DWithBiasAndRelu(input: Tinput, filter: Tfilter, bias: float, min_input: float, "
    "max_input: float, min_filter: float, max_filter: float) -> output: out_type, min_output: float, max_output: "
    "float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "out_type: quantizedtype = qint32", "strides: list(int)",
    "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]", "padding_list: list(int) = []",
)
register_op(
    "QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize(input: Tinput, filter: Tfilter, bias: Tbias, min_input: "
    "float, max_input: float, min_filter: float, max_filter: float, min_freezed_output: float, max_freezed_output: "
    "float) -> output: out_type, min_output: float, max_output: float",
    "Tinput: quantizedtype", "Tfilter: quantizedtype", "Tbias: {float, qint32}", "out_type: quantizedtype = quint8",
    "strides: list(int)", "padding: {'SAME', 'VALID'}", "dilations: list(int) = [1, 1, 1, 1]",
    "padding_list: list(int) = []",
)
register_op(
    "QuantizedInstanceNorm(x: T, x_min: float, x_max: float) -> y: T, y_min: float, y_max: float",
    "T: quantizedtype", "output_range_given: bool = false", "given_y_min: float = 0.0", "given_y_max: float = 0.0",
    "variance_epsilon: float = 1e-05", "min_separation: float = 0.001", shape_fn=shapes.quantized_instance_norm,
)
register_op(
    "QuantizedMatMul(a: T1, b: T2, min_a: float, max_a: float, min_b: float, max_b: float) -> out: Toutput, "
    "min_out: float, max_out: float",
    "T1: quantizedtype", "T2: quantizedtype", "Toutput: quantizedtype = qint32", "transpose_a: bool = false",
    "transpose_b: bool = false", "Tactivation: quantizedtype = quint8", shape_fn=shapes.quantized_mat_mul,
)
register_op(
    "QuantizedMatMulWithBias(a: T1, b: T2, bias: Tbias, min_a: float, max_a: float, min_b: float, max_b: float) -> "
    "out: Toutput, min_out: float, max_out: float",
    "T1: quantizedtype", "T2: quantizedtype", "Tbias: {float, qint32}", "Toutput: quantizedtype = qint32",
    "transpose_a: bool = false", "transpose_b: bool = false", "input_quant_mode: {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST'",
)
register_op(
    "QuantizedMatMulWithBiasAndDequantize(a: T1, b: T2, bias: Tbias, min_a: float, max_a: float, min_b: float, "
    "max_b: float, min_freezed_output: float, max_freezed_output: float) -> out: Toutput",
    "T1: quantizedtype", "T2: quantizedtype", "Tbias: {float, qint32}", "Toutput: {float}", "transpose_a: bool = false",
    "transpose_b: bool = false", "input_quant_mode: {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST'",
)
register_op(
    "QuantizedMatMulWithBiasAndRelu(a: T1, b: T2, bias: float, min_a: float, max_a: float, min_b: float, max_b: "
    "float) -> out: Toutput, min_out: float, max_out: float",
    "T1: quantizedtype", "T2: quantizedtype", "Toutput: quantizedtype = qint32", "transpose_a: bool = false",
    "transpose_b: bool = false", "input_quant_mode: {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST'",
)
register_op(
    "QuantizedMatMulWithBiasAndReluAndRequantize(a: T1, b: T2, bias: Tbias, min_a: float, max_a: float, min_b: "
    "float, max_b: float, min_freezed_output: float, max_freezed_output: float) -> out: Toutput, min_out: float, "
    "max_out: float",
    "T1: quantizedtype", "T2: quantizedtype", "Tbias: {float, qint32}", "Toutput: quantizedtype = quint8",
    "transpose_a: bool = false", "transpose_b: bool = false", "input_quant_mode: {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST'",
)
register_op(
    "QuantizedMatMulWithBiasAndRequantize(a: T1, b: T2, bias: Tbias, min_a: float, max_a: float, min_b: float, "
    "max_b: float, min_freezed_output: float, max_freezed_output: float) -> out: Toutput, min_out: float, max_out: "
    "float",
    "T1: quantizedtype", "T2: quantizedtype", "Tbias: {float, qint32}", "Toutput: quantizedtype = quint8",
    "transpose_a: bool = false", "transpose_b: bool = false", "input_quant_mode: {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST'",
)
register_op(
    "QuantizedMaxPool(input: T, min_input: float, max_input: float) -> output: T, min_output: float, max_output: float",
    "T: quantizedtype", "ksize: list(int)", "strides: list(int)", "padding: {'SAME', 'VALID'}",
    shape_fn=shapes.quantized_max_pool,
)
register_op(
    "QuantizedMul(x: T1, y: T2, min_x: float, max_x: float, min_y: float, max_y: float) -> z: Toutput, min_z: "
    "float, max_z: float",
    "T1: quantizedtype", "T2: quantizedtype", "Toutput: quantizedtype = qint32", shape_fn=shapes.quantized_pair,
)
register_op(
    "QuantizedRelu(features: Tinput, min_features: float, max_features: float) -> activations: out_type, "
    "min_activations: float, max_activations: float",
    "Tinput: quantizedtype", "out_type: quantizedtype = quint8", shape_fn=shapes.unchanged_with_range,
)
register_op(
    "QuantizedRelu6(features: Tinput, min_features: float, max_features: float) -> activations: out_type, "
    "min_activations: float, max_activations: float",
    "Tinput: quantizedtype", "out_type: quantizedtype = quint8", shape_fn=shapes.unchanged_with_range,
)
register_op(
    "QuantizedReluX(features: Tinput, max_value: float, min_features: float, max_features: float) -> activations: "
    "out_type, min_activations: float, max_activations: float",
    "Tinput: quantizedtype", "out_type: quantizedtype = quint8",
)
register_op(
    "QuantizedReshape(tensor: T, shape: Tshape, input_min: float, input_max: float) -> output: T, output_min: "
    "float, output_max: float",
    "T: type", "Tshape: {int32, int64} = int32", shape_fn=shapes.quantized_reshape,
)
register_op(
    "QuantizedResizeBilinear(images: T, size: int32, min: float, max: float) -> resized_images: T, out_min: float, "
    "out_max: float",
    "T: {quint8, qint32, float}", "align_corners: bool = false", "half_pixel_centers: bool = false",
    shape_fn=shapes.quantized_resize,
)
register_op(
    "RequantizationRange(input: Tinput, input_min: float, input_max: float) -> output_min: float, output_max: float",
    "Tinput: quantizedtype", shape_fn=shapes.range_of,
)
register_op(
    "RequantizationRangePerChannel(input: T, input_min: float, input_max: float) -> output_min: float, output_max: "
    "float",
    "T: quantizedtype = qint32", "clip_value_max: float", shape_fn=shapes.range_per_channel,
)
register_op(
    "Requantize(input: Tinput, input_min: float, input_max: float, requested_output_min: float, "
    "requested_output_max: float) -> output: out_type, output_min: float, output_max: float",
    "Tinput: quantizedtype", "out_type: quantizedtype", shape_fn=shapes.unchanged_with_range,
)
register_op(
    "RequantizePerChannel(input: T, input_min: float, input_max: float, requested_output_min: float, "
    "requested_output_max: float) -> output: out_type, output_min: float, output_max: float",
    "T: quantizedtype = qint32", "out_type: quantizedtype = quint8", shape_fn=shapes.requantized_per_channel,
)
register_op(
    "UniformDequantize(input: Tin, scales: float, zero_points: int32) -> output: Tout",
    "Tin: {qint8, quint8, qint32}", "Tout: {float}", "quantization_axis: int = -1", "quantization_min_val: int",
    "quantization_max_val: int",
)
register_op(
    "UniformQuantize(input: Tin, scales: float, zero_points: int32) -> output: Tout",
    "Tin: {float}", "Tout: {qint8, quint8, qint32}", "quantization_axis: int = -1", "quantization_min_val: int",
    "quantization_max_val: int",
)
register_op(
    "UniformQuantizedAdd(lhs: T, rhs: T, lhs_scales: float, lhs_zero_points: int32, rhs_scales: float, "
    "rhs_zero_points: int32, output_scales: float, output_zero_points: int32) -> output: T",
    "lhs_quantization_axis: int = -1", "lhs_quantization_min_val: int", "lhs_quantization_max_val: int",
    "rhs_quantization_axis: int = -1", "rhs_quantization_min_val: int", "rhs_quantization_max_val: int",
    "output_quantization_axis: int = -1", "output_quantization_min_val: int", "output_quantization_max_val: int",
    "T: {qint32}",
)
register_op(
    "UniformQuantizedClipByValue(operand: T, min: T, max: T, scales: float, zero_points: int32) -> output: T",
    "T: {qint32}", "quantization_axis: int = -1", "quantization_min_val: int", "quantization_max_val: int",
)
register_op(
    "UniformQuantizedConvolution(lhs: Tin, rhs: Tin, lhs_scales: float, lhs_zero_points: int32, rhs_scales: float, "
    "rhs_zero_points: int32, output_scales: float, output_zero_points: int32) -> output: Tout",
    "Tin: {qint8}", "Tout: {qint32}", "window_strides: list(int) = []", "padding: string",
    "explicit_padding: list(int) = []", "lhs_dilation: list(int) = []", "rhs_dilation: list(int) = []",
    "batch_group_count: int = 1", "feature_group_count: int = 1", "dimension_numbers: string = ''",
    "lhs_quantization_axis: int = -1", "lhs_quantization_min_val: int", "lhs_quantization_max_val: int",
    "rhs_quantization_axis: int = -1", "rhs_quantization_min_val: int", "rhs_quantization_max_val: int",
    "output_quantization_axis: int = -1", "output_quantization_min_val: int", "output_quantization_max_val: int",
)
register_op(
    "UniformQuantizedConvolutionHybrid(lhs: Tlhs, rhs: Trhs, rhs_scales: float, rhs_zero_points: int32) -> output: "
    "Tout",
    "Tlhs: {float}", "Trhs: {qint8}", "Tout: {float}", "window_strides: list(int) = []", "padding: string",
    "explicit_padding: list(int) = []", "lhs_dilation: list(int) = []", "rhs_dilation: list(int) = []",
    "batch_group_count: int = 1", "feature_group_count: int = 1", "dimension_numbers: string = ''",
    "rhs_quantization_axis: int = -1", "rhs_quantization_min_val: int", "rhs_quantization_max_val: int",
)
register_op(
    "UniformQuantizedDot(lhs: Tin, rhs: Tin, lhs_scales: float, lhs_zero_points: int32, rhs_scales: float, "
    "rhs_zero_points: int32, output_scales: float, output_zero_points: int32) -> output: Tout",
    "Tin: {qint8}", "Tout: {qint32}", "lhs_quantization_axis: int = -1", "lhs_quantization_min_val: int",
    "lhs_quantization_max_val: int", "rhs_quantization_axis: int = -1", "rhs_quantization_min_val: int",
    "rhs_quantization_max_val: int", "output_quantization_axis: int = -1", "output_quantization_min_val: int",
    "output_quantization_max_val: int",
)
register_op(
    "UniformQuantizedDotHybrid(lhs: Tlhs, rhs: Trhs, rhs_scales: float, rhs_zero_points: int32) -> output: Tout",
    "Tlhs: {float}", "Trhs: {qint8}", "Tout: {float}", "rhs_quantization_axis: int = -1",
    "rhs_quantization_min_val: int", "rhs_quantization_max_val: int",
)
register_op(
    "UniformRequantize(input: Tin, input_scales: float, input_zero_points: int32, output_scales: float, "
    "output_zero_points: int32) -> output: Tout",
    "Tin: {qint8, qint32}", "Tout: {qint8, qint32}", "input_quantization_axis: int = -1",
    "input_quantization_min_val: int", "input_quantization_max_val: int", "output_quantization_axis: int = -1",
    "output_quantization_min_val: int", "output_quantization_max_val: int",
)
