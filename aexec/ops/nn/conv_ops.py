"""Convolutions, poolings and dilations, with their gradients."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.nn import nn_shapes as shapes
from aexec.ops.nn import window_shapes as nn

CONV_TYPES = "{half, bfloat16, float, double, int32}"
HALF_FIRST_FLOATS = "{half, bfloat16, float, double}"
IMAGE_FORMATS = "{'NHWC', 'NCHW', 'NCHW_VECT_C'}"

register_op(
    "AvgPool(value: T) -> output: T",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", f"T: {HALF_FIRST_FLOATS}", shape_fn=nn.avg_pool,
)
register_op(
    "AvgPool3D(input: T) -> output: T",
    "ksize: list(int) >= 5", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", f"T: {HALF_FIRST_FLOATS}", shape_fn=nn.pool_3d,
)
register_op(
    "AvgPool3DGrad(orig_input_shape: int32, grad: T) -> output: T",
    "ksize: list(int) >= 5", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.volume_sizes,
)
register_op(
    "AvgPoolGrad(orig_input_shape: int32, grad: T) -> output: T",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.image_sizes,
)
register_op(
    "Conv(input: T, filter: T) -> output: T",
    f"T: {CONV_TYPES}", "strides: list(int)", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'CHANNELS_FIRST', 'CHANNELS_LAST'} = 'CHANNELS_LAST'",
    "dilations: list(int) = []", "batch_dims: int = 1", "groups: int = 1", shape_fn=nn.conv,
)
register_op(
    "Conv2D(input: T, filter: T) -> output: T",
    f"T: {CONV_TYPES}", "strides: list(int)", "use_cudnn_on_gpu: bool = true", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "dilations: list(int) = [1, 1, 1, 1]", shape_fn=nn.conv_2d,
)
register_op(
    "Conv2DBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int)", "use_cudnn_on_gpu: bool = true",
    "padding: {'SAME', 'VALID', 'EXPLICIT'}", "explicit_paddings: list(int) = []",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "dilations: list(int) = [1, 1, 1, 1]", shape_fn=shapes.filter_sizes,
)
register_op(
    "Conv2DBackpropFilterV2(input: T, filter: T, out_backprop: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int)", "use_cudnn_on_gpu: bool = true",
    "padding: {'SAME', 'VALID', 'EXPLICIT'}", "explicit_paddings: list(int) = []",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "dilations: list(int) = [1, 1, 1, 1]", shape_fn=shapes.filter_given,
)
register_op(
    "Conv2DBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T",
    f"T: {CONV_TYPES}", "strides: list(int)", "use_cudnn_on_gpu: bool = true", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "dilations: list(int) = [1, 1, 1, 1]", shape_fn=nn.conv_2d_backprop_input,
)
register_op(
    "Conv2DBackpropInputV2(input: T, filter: T, out_backprop: T) -> output: T",
    f"T: {CONV_TYPES}", "strides: list(int)", "use_cudnn_on_gpu: bool = true", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "dilations: list(int) = [1, 1, 1, 1]", shape_fn=common.unchanged_image,
)
register_op(
    "Conv3D(input: T, filter: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "dilations: list(int) = [1, 1, 1, 1, 1]", shape_fn=nn.conv_3d,
)
register_op(
    "Conv3DBackpropFilter(input: T, filter: T, out_backprop: T) -> output: T",
    "T: {half, float, double}", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "dilations: list(int) = [1, 1, 1, 1, 1]", deprecated=(10, "Use Conv3DBackpropFilterV2"),
    shape_fn=shapes.volume_filter_given,
)
register_op(
    "Conv3DBackpropFilterV2(input: T, filter_sizes: int32, out_backprop: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "dilations: list(int) = [1, 1, 1, 1, 1]",
    shape_fn=shapes.volume_filter_sizes,
)
register_op(
    "Conv3DBackpropInput(input: T, filter: T, out_backprop: T) -> output: T",
    "T: {half, float, double}", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "dilations: list(int) = [1, 1, 1, 1, 1]", deprecated=(10, "Use Conv3DBackpropInputV2"),
    shape_fn=common.unchanged_volume_image,
)
register_op(
    "Conv3DBackpropInputV2(input_sizes: Tshape, filter: T, out_backprop: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "dilations: list(int) = [1, 1, 1, 1, 1]",
    "Tshape: {int32, int64} = int32", shape_fn=shapes.volume_sizes,
)
register_op(
    "DepthwiseConv2dNative(input: T, filter: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int)", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "dilations: list(int) = [1, 1, 1, 1]", shape_fn=nn.depthwise_conv_2d,
)
register_op(
    "DepthwiseConv2dNativeBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int)", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "dilations: list(int) = [1, 1, 1, 1]", shape_fn=shapes.filter_sizes,
)
register_op(
    "DepthwiseConv2dNativeBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "strides: list(int)", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "dilations: list(int) = [1, 1, 1, 1]", shape_fn=shapes.image_sizes,
)
register_op(
    "Dilation2D(input: T, filter: T) -> output: T",
    "T: realnumbertype", "strides: list(int) >= 4", "rates: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    shape_fn=shapes.dilation_2d,
)
register_op(
    "Dilation2DBackpropFilter(input: T, filter: T, out_backprop: T) -> filter_backprop: T",
    "T: realnumbertype", "strides: list(int) >= 4", "rates: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    shape_fn=shapes.second_input,
)
register_op(
    "Dilation2DBackpropInput(input: T, filter: T, out_backprop: T) -> in_backprop: T",
    "T: realnumbertype", "strides: list(int) >= 4", "rates: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    shape_fn=common.unchanged_shape,
)
register_op(
    "FractionalAvgPool(value: T) -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
    "pooling_ratio: list(float) >= 4", "pseudo_random: bool = false", "overlapping: bool = false",
    "deterministic: bool = false", "seed: int = 0", "seed2: int = 0", "T: {float, double, int32, int64}",
    shape_fn=shapes.fractional_pool,
)
register_op(
    "FractionalAvgPoolGrad(orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, "
    "col_pooling_sequence: int64) -> output: T",
    "overlapping: bool = false", "T: {float, double, int32, int64}", shape_fn=shapes.fractional_avg_pool_grad,
)
register_op(
    "FractionalMaxPool(value: T) -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
    "pooling_ratio: list(float) >= 4", "pseudo_random: bool = false", "overlapping: bool = false",
    "deterministic: bool = false", "seed: int = 0", "seed2: int = 0", "T: {float, double, int32, int64}",
    shape_fn=shapes.fractional_pool,
)
register_op(
    "FractionalMaxPoolGrad(orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, "
    "col_pooling_sequence: int64) -> output: T",
    "overlapping: bool = false", "T: {float, double, int32, int64}", shape_fn=common.unchanged_image,
)
register_op(
    "FusedPadConv2D(input: T, paddings: int32, filter: T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "mode: {'REFLECT', 'SYMMETRIC'}", "strides: list(int)", "padding: {'SAME', 'VALID'}",
    shape_fn=nn.fused_pad_conv_2d,
)
register_op(
    "FusedResizeAndPadConv2D(input: T, size: int32, paddings: int32, filter: T) -> output: T",
    "T: {half, float, double}", "resize_align_corners: bool = false", "mode: {'REFLECT', 'SYMMETRIC'}",
    "strides: list(int)", "padding: {'SAME', 'VALID'}", shape_fn=nn.fused_resize_and_pad_conv_2d,
)
register_op(
    "MaxPool(input: T) -> output: T",
    "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", f"data_format: {IMAGE_FORMATS} = 'NHWC'", shape_fn=nn.max_pool,
)
register_op(
    "MaxPool3D(input: T) -> output: T",
    "ksize: list(int) >= 5", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "T: {half, bfloat16, float}", shape_fn=nn.pool_3d,
)
register_op(
    "MaxPool3DGrad(orig_input: TInput, orig_output: TInput, grad: T) -> output: T",
    "ksize: list(int) >= 5", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "T: {half, bfloat16, float} = float",
    "TInput: {half, bfloat16, float} = float", shape_fn=common.unchanged_volume_image,
)
register_op(
    "MaxPool3DGradGrad(orig_input: T, orig_output: T, grad: T) -> output: T",
    "ksize: list(int) >= 5", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "T: realnumbertype", shape_fn=shapes.max_pool_3d_grad_grad,
)
register_op(
    "MaxPoolGrad(orig_input: T, orig_output: T, grad: T) -> output: T",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings: list(int) = []", "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "T: realnumbertype = float",
    shape_fn=common.unchanged_image,
)
register_op(
    "MaxPoolGradGrad(orig_input: T, orig_output: T, grad: T) -> output: T",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "T: realnumbertype", shape_fn=shapes.max_pool_grad_grad,
)
register_op(
    "MaxPoolGradGradV2(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T",
    "padding: {'SAME', 'VALID'}", "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "T: realnumbertype",
    shape_fn=shapes.max_pool_grad_grad_v2,
)
register_op(
    "MaxPoolGradGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    "include_batch_in_index: bool = false", "Targmax: {int32, int64}", "T: realnumbertype",
    shape_fn=shapes.max_pool_grad_grad_with_argmax,
)
register_op(
    "MaxPoolGradV2(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T",
    "padding: {'SAME', 'VALID'}", "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "T: realnumbertype = float",
    shape_fn=common.unchanged_image,
)
register_op(
    "MaxPoolGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "padding: {'SAME', 'VALID'}",
    "include_batch_in_index: bool = false", "Targmax: {int32, int64}", "T: realnumbertype",
    shape_fn=common.unchanged_image,
)
register_op(
    "MaxPoolV2(input: T, ksize: int32, strides: int32) -> output: T",
    "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float",
    "padding: {'SAME', 'VALID'}", f"data_format: {IMAGE_FORMATS} = 'NHWC'", shape_fn=nn.max_pool_v2,
)
register_op(
    "MaxPoolWithArgmax(input: T) -> output: T, argmax: Targmax",
    "ksize: list(int) >= 4", "strides: list(int) >= 4", "Targmax: {int32, int64} = int64", "padding: {'SAME', 'VALID'}",
    "include_batch_in_index: bool = false", "T: realnumbertype", shape_fn=shapes.max_pool_with_argmax,
)
register_op(
    "_FusedConv2D(input: T, filter: T, args: TArgs, host_args: num_host_args * float) -> output: T",
    "T: {half, float, double, int8, qint8}", "TArgs: list(type)", "num_args: int >= 0", "num_host_args: int >= 0 = 0",
    "strides: list(int)", "padding: {'SAME', 'VALID', 'EXPLICIT'}", "explicit_paddings: list(int) = []",
    f"data_format: {IMAGE_FORMATS} = 'NHWC'", "filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'",
    "dilations: list(int) = [1, 1, 1, 1]", "use_cudnn_on_gpu: bool = true", "fused_ops: list(string) = []",
    "epsilon: float = 0.0001", "leakyrelu_alpha: float = 0.2", shape_fn=nn.conv_2d,
)
register_op(
    "_FusedConv3D(input: T, filter: T, args: num_args * T) -> output: T",
    "T: {bfloat16, float, half}", "num_args: int >= 0", "strides: list(int) >= 5", "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'", "dilations: list(int) = [1, 1, 1, 1, 1]",
    "padding_list: list(int) = []", "fused_ops: list(string) = []", "epsilon: float = 0.0001",
    "leakyrelu_alpha: float = 0.2", shape_fn=nn.conv_3d,
)
register_op(
    "_FusedDepthwiseConv2dNative(input: T, filter: T, args: num_args * T) -> output: T",
    f"T: {HALF_FIRST_FLOATS}", "num_args: int >= 0", "strides: list(int)", "padding: {'SAME', 'VALID'}",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'", "dilations: list(int) = [1, 1, 1, 1]", "fused_ops: list(string) = []",
    "epsilon: float = 0.0001", "leakyrelu_alpha: float = 0.2", shape_fn=nn.depthwise_conv_2d,
)
