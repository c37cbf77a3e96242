"""Shape functions of `quantize_ops`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import (
    bias_add,
    broadcast_binary,
    concat_shape,
    unchanged_shape,
)
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape, ShapeFn
from aexec.ops.array import array_shapes
from aexec.ops.image import image_shapes
from aexec.ops.math import math_shapes
from aexec.ops.nn import window_shapes


def _axis(c: InferenceContext) -> int:
    axis: int = c.attrs.get("axis", -1)
    if axis < -1:
        raise errors.InvalidArgumentError(f"axis should be at least -1, got {axis}")
    return axis


def _check_ranges(c: InferenceContext, minimum: int) -> Shape:
    """Inputs `minimum` and the next are scalars, or vectors as long as dimension `axis` of input 0: their shape."""
    axis = _axis(c)
    low = c.with_rank(c.input(minimum), 0 if axis == -1 else 1)
    high = c.merge(c.input(minimum + 1), low)
    if axis != -1:
        shape = c.with_rank_at_least(c.input(0), axis + 1)
        if shape.dims is not None:
            depth = c.merge_dims(c.dim(low, 0), c.dim(shape, axis))
            c.merge_dims(c.dim(high, 0), depth)
    return high


def range_scalars(c: InferenceContext) -> None:
    """Dequantize: input 0; inputs 1 and 2 are its range."""
    _check_ranges(c, 1)
    unchanged_shape(c)


def quantize(c: InferenceContext) -> None:
    """QuantizeV2: input 0, and the range of the result."""
    _check_ranges(c, 1)
    unchanged_shape(c)
    axis = _axis(c)
    depth = None if axis == -1 else c.dim(c.with_rank_at_least(c.input(0), axis + 1), axis)
    for index in (1, 2):
        c.set_output(index, c.scalar() if axis == -1 else c.vector(depth))


def quantize_and_dequantize(c: InferenceContext) -> None:
    """Input 0; the range, and maybe the number of bits, are further inputs."""
    _check_ranges(c, 1)
    if c.num_inputs > 3:
        c.with_rank(c.input(3), 0)
    unchanged_shape(c)


def quantize_and_dequantize_grad(c: InferenceContext) -> None:
    """Gradients of input 1, and of its range, inputs 2 and 3."""
    low = _check_ranges(c, 2)
    shape = c.merge(c.input(0), c.input(1))
    c.set_output(0, shape)
    c.set_output(1, low)
    c.set_output(2, low)


def fake_quant(c: InferenceContext) -> None:
    """Input 0; inputs 1 and 2 are scalars."""
    c.with_rank(c.input(1), 0)
    c.with_rank(c.input(2), 0)
    unchanged_shape(c)


def fake_quant_grad(c: InferenceContext) -> None:
    """Gradients as input 0, and of the scalar range."""
    shape = c.merge(c.input(0), c.input(1))
    c.merge(c.with_rank(c.input(2), 0), c.input(3))
    c.set_output(0, shape)
    c.set_output(1, c.scalar())
    c.set_output(2, c.scalar())


def fake_quant_per_channel(c: InferenceContext) -> None:
    """Input 0; inputs 1 and 2 are as long as its last dimension."""
    shape = c.with_rank_at_least(c.input(0), 1)
    last = c.dim(shape, -1)
    for index in (1, 2):
        last = c.merge_dims(last, c.dim(c.with_rank(c.input(index), 1), 0))
    c.set_output(0, shape)


def fake_quant_per_channel_grad(c: InferenceContext) -> None:
    """Gradients as input 0, and of the range per channel."""
    shape = c.merge(c.with_rank_at_least(c.input(0), 1), c.input(1))
    last = c.dim(shape, -1)
    for index in (2, 3):
        last = c.merge_dims(last, c.dim(c.with_rank(c.input(index), 1), 0))
    c.set_output(0, shape)
    c.set_output(1, c.vector(last))
    c.set_output(2, c.vector(last))


def quantized_reshape(c: InferenceContext) -> None:
    """Like Reshape; the range is passed on."""
    array_shapes.reshape(c)
    for index in (1, 2):
        c.with_rank(c.input(index + 1), 0)
        c.set_output(index, c.scalar())


def unchanged_with_range(c: InferenceContext) -> None:
    """Input 0, and scalars for the range; all other inputs are scalars."""
    for index in range(1, c.num_inputs):
        c.with_rank(c.input(index), 0)
    unchanged_shape(c)
    c.set_output(1, c.scalar())
    c.set_output(2, c.scalar())


def range_per_channel(c: InferenceContext) -> None:
    """The range, two scalars, of images, whose channels have ranges, which are vectors."""
    c.with_rank(c.input(0), 4)
    c.set_output(0, c.scalar())
    c.set_output(1, c.scalar())


def requantized_per_channel(c: InferenceContext) -> None:
    """Images as they are, and scalars for the range."""
    c.set_output(0, c.with_rank(c.input(0), 4))
    c.set_output(1, c.scalar())
    c.set_output(2, c.scalar())


def range_of(c: InferenceContext) -> None:
    """The range, two scalars, of input 0; its own range are scalars."""
    c.with_rank(c.input(1), 0)
    c.with_rank(c.input(2), 0)
    c.set_output(0, c.scalar())
    c.set_output(1, c.scalar())


def quantized_mat_mul(c: InferenceContext) -> None:
    """The product of matrices; the range is scalars."""
    math_shapes.mat_mul(c)
    for index in range(2, 6):
        c.with_rank(c.input(index), 0)
    c.set_output(1, c.scalar())
    c.set_output(2, c.scalar())


def _with_range(rule: ShapeFn, first: int) -> ShapeFn:
    """Output 0 by `rule`; the range, two scalars, follows.  Inputs from `first` on are scalars."""

    def shape_fn(c: InferenceContext) -> None:
        rule(c)
        for index in range(first, c.num_inputs):
            c.with_rank(c.input(index), 0)
        c.set_output(1, c.scalar())
        c.set_output(2, c.scalar())

    return shape_fn


quantized_avg_pool = _with_range(window_shapes.avg_pool, 1)
quantized_bias_add = _with_range(bias_add, 2)
quantized_conv_2d = _with_range(window_shapes.conv_2d, 2)
quantized_max_pool = _with_range(window_shapes.max_pool, 1)
quantized_pair = _with_range(broadcast_binary, 2)
quantized_resize = _with_range(image_shapes.resize, 2)


def quantized_instance_norm(c: InferenceContext) -> None:
    """Images, and scalars for the range."""
    c.with_rank(c.input(0), 4)
    unchanged_with_range(c)


def quantized_concat(c: InferenceContext) -> None:
    """Inputs 1 to N joined along the axis that is the value of input 0; the ranges are scalars."""
    count = c.attr("N")
    concat_shape(c, range(1, count + 1), 0)
    for index in range(count + 1, c.num_inputs):
        c.with_rank(c.input(index), 0)
    c.set_output(1, c.scalar())
    c.set_output(2, c.scalar())
