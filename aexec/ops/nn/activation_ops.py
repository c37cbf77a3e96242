"""Activation functions and their gradients."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.nn import activation_shapes as shapes

HALF_FIRST_FLOATS = "{half, bfloat16, float, double}"

register_op("Elu(features: T) -> activations: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=common.unchanged_shape)
register_op("EluGrad(gradients: T, outputs: T) -> backprops: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.same_shape)
register_op(
    "LeakyRelu(features: T) -> activations: T",
    "alpha: float = 0.2", f"T: {HALF_FIRST_FLOATS} = float", shape_fn=common.unchanged_shape,
)
register_op(
    "LeakyReluGrad(gradients: T, features: T) -> backprops: T",
    "alpha: float = 0.2", f"T: {HALF_FIRST_FLOATS} = float", shape_fn=shapes.same_shape,
)
register_op(
    "LogSoftmax(logits: T) -> logsoftmax: T",
    f"T: {HALF_FIRST_FLOATS}", shape_fn=common.unchanged_vector_or_more,
)
register_op("Relu(features: T) -> activations: T", "T: {realnumbertype, qint8}", shape_fn=common.unchanged_shape)
register_op("Relu6(features: T) -> activations: T", "T: realnumbertype", shape_fn=common.unchanged_shape)
register_op("Relu6Grad(gradients: T, features: T) -> backprops: T", "T: realnumbertype", shape_fn=shapes.same_shape)
register_op("ReluGrad(gradients: T, features: T) -> backprops: T", "T: realnumbertype", shape_fn=shapes.same_shape)
register_op("Selu(features: T) -> activations: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=common.unchanged_shape)
register_op("SeluGrad(gradients: T, outputs: T) -> backprops: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.same_shape)
register_op("Softmax(logits: T) -> softmax: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=common.unchanged_vector_or_more)
register_op("Softplus(features: T) -> activations: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=common.unchanged_shape)
register_op(
    "SoftplusGrad(gradients: T, features: T) -> backprops: T",
    f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.same_shape,
)
register_op("Softsign(features: T) -> activations: T", f"T: {HALF_FIRST_FLOATS}", shape_fn=common.unchanged_shape)
register_op(
    "SoftsignGrad(gradients: T, features: T) -> backprops: T",
    f"T: {HALF_FIRST_FLOATS}", shape_fn=shapes.same_shape,
)
