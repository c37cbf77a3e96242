"""Shape functions of `nn_ops` and `conv_ops` that are not shared; the others are in `nn_shape_fns`."""

from __future__ import annotations

import math

import numpy as np

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import broadcast_shape
from aexec.framework.shape_functions.shape_inference import Dimension, InferenceContext, Shape
from aexec.ops.nn import window_shapes as nn


def _common_length(c: InferenceContext, first: Dimension, vectors: range) -> Dimension:
    """The length that vectors share with a dimension."""
    for index in vectors:
        first = c.merge_dims(first, c.dim(c.with_rank(c.input(index), 1), 0))
    return first


def batch_norm_global(c: InferenceContext) -> None:
    """Image, and four vectors whose length is its number of channels."""
    shape = c.with_rank(c.input(0), 4)
    channels = _common_length(c, c.dim(shape, 3), range(1, 5))
    c.set_output(0, c.replace_dim(shape, 3, channels))


def batch_norm_global_grad(c: InferenceContext) -> None:
    """Gradients of image and of four vectors."""
    shape = c.merge(c.with_rank(c.input(0), 4), c.input(4))
    channels = _common_length(c, c.dim(shape, 3), range(1, 4))
    c.set_output(0, c.replace_dim(shape, 3, channels))
    for index in range(1, 5):
        c.set_output(index, c.vector(channels))


def in_top_k(c: InferenceContext) -> None:
    """A vector as long as targets, input 1, and rows of predictions, input 0."""
    predictions = c.with_rank(c.input(0), 2)
    targets = c.with_rank(c.input(1), 1)
    c.set_output(0, c.vector(c.merge_dims(c.dim(predictions, 0), c.dim(targets, 0))))


def isotonic_regression(c: InferenceContext) -> None:
    """Both outputs have the shape of input 0."""
    c.set_output(0, c.input(0))
    c.set_output(1, c.input(0))


def lrn_grad(c: InferenceContext) -> None:
    """Three images of one shape."""
    c.set_output(0, c.merge(c.merge(c.with_rank(c.input(0), 4), c.input(1)), c.input(2)))


def nth_element(c: InferenceContext) -> None:
    """Input 0 without its last dimension."""
    shape = c.with_rank_at_least(c.input(0), 1)
    n, last = c.make_dim_for_scalar_input(1), c.dim(shape, -1)
    if n.value is not None and last.value is not None and last.value <= n.value:
        raise errors.InvalidArgumentError(f"Input must have last dimension > n = {n} but is {last}")
    c.set_output(0, c.subshape(shape, 0, -1))


def softmax_cross_entropy(c: InferenceContext) -> None:
    """Loss per row, and gradient; logits and labels are broadcast."""
    try:
        both = c.merge(c.with_rank(c.input(0), 2), c.input(1))
    except errors.InvalidArgumentError:
        both = broadcast_shape(c, c.input(0), c.input(1))
        if both.dims is None:
            raise errors.InvalidArgumentError(
                "Shape must be broadcasted with rank 2, but is rank is unknown."
            ) from None
        if len(both.dims) != 2:
            raise errors.InvalidArgumentError(
                f"Shape must be broadcasted with rank 2, but is rank {len(both.dims)}"
            ) from None
    c.set_output(0, c.vector(c.dim(both, 0)))
    c.set_output(1, both)


def sparse_softmax_cross_entropy(c: InferenceContext) -> None:
    """Loss per row, and gradient; labels are a vector."""
    features = c.with_rank(c.input(0), 2)
    labels = c.with_rank(c.input(1), 1)
    rows = c.merge_dims(c.dim(features, 0), c.dim(labels, 0))
    c.set_output(0, c.vector(rows))
    c.set_output(1, c.replace_dim(features, 0, rows))


def top_k(c: InferenceContext) -> None:
    """Values and indices: input 0 with its last dimension cut to k, attr or input 1."""
    shape = c.with_rank_at_least(c.input(0), 1)
    if c.num_inputs > 1:
        k = c.make_dim_for_scalar_input(1)
    elif c.attr("k") < 0:
        raise errors.InvalidArgumentError(f"Need k >= 0, got {c.attr('k')}")
    else:
        k = c.make_dim(c.attr("k"))
    last = c.dim(shape, -1)
    if k.value is not None and last.value is not None and last.value < k.value:
        raise errors.InvalidArgumentError(f"input must have last dimension >= k = {k} but is {last}")
    out = c.concatenate(c.subshape(shape, 0, -1), c.vector(k))
    c.set_output(0, out)
    c.set_output(1, out)


# Convolutions and pools


def _shape_input(c: InferenceContext, index: int, rank: int) -> None:
    c.set_output(0, c.with_rank(c.make_shape_from_shape_tensor(index), rank))


def image_sizes(c: InferenceContext) -> None:
    """The image given by input 0."""
    _shape_input(c, 0, 4)


def filter_sizes(c: InferenceContext) -> None:
    """The filter given by input 1."""
    _shape_input(c, 1, 4)


def volume_sizes(c: InferenceContext) -> None:
    """The image of rank 5 given by input 0."""
    _shape_input(c, 0, 5)


def volume_filter_sizes(c: InferenceContext) -> None:
    """The filter of rank 5 given by input 1."""
    _shape_input(c, 1, 5)


def filter_given(c: InferenceContext) -> None:
    """The filter's shape is that of input 1."""
    c.set_output(0, c.with_rank(c.input(1), 4))


def volume_filter_given(c: InferenceContext) -> None:
    """The filter's shape is that of input 1, of rank 5."""
    c.set_output(0, c.with_rank(c.input(1), 5))


def second_input(c: InferenceContext) -> None:
    """Input 1."""
    c.set_output(0, c.input(1))


def dilation_2d(c: InferenceContext) -> None:
    """Image and filter [rows, columns, depth]."""
    shape = c.with_rank(c.input(0), 4)
    filter_shape = c.with_rank(c.input(1), 3)
    strides, rates = c.attr("strides"), c.attr("rates")
    for values, name in ((strides, "stride"), (rates, "rates")):
        if len(values) != 4:
            raise errors.InvalidArgumentError(
                f"Dilation2D requires the {name} attribute to contain 4 values, but got: {len(values)}"
            )
    depth = c.dim(filter_shape, 2)
    sizes = [c.dim(shape, i).value for i in (1, 2)] + [c.dim(filter_shape, i).value for i in (0, 1)]
    rows, columns, filter_rows, filter_columns = sizes
    out: tuple[int | None, int | None] = (None, None)
    if rows is not None and columns is not None and filter_rows is not None and filter_columns is not None:
        c.merge_dims(c.dim(shape, 3), depth)
        padding = c.text("padding")
        out = (
            nn.windowed_int(rows, filter_rows, strides[1], padding, rates[1]),
            nn.windowed_int(columns, filter_columns, strides[2], padding, rates[2]),
        )
    c.set_output(0, c.make_shape((c.dim(shape, 0), *out, depth)))


def fractional_pool(c: InferenceContext) -> None:
    """Each dimension divided by its ratio, in float32; and the starts of rows and columns, each with one end more."""
    shape = c.with_rank(c.input(0), 4)
    ratios = c.attr("pooling_ratio")
    if len(ratios) != 4:
        raise errors.InvalidArgumentError("pooling_ratio field must specify 4 dimensions")
    dims: list[Dimension] = []
    for index, ratio in enumerate(ratios):
        size = c.dim(shape, index).value
        if size is None:
            dims.append(c.unknown_dim())
            continue
        if not 0 < ratio < math.inf:
            raise errors.InvalidArgumentError(f"Size computed for dim {index} is negative: ratio {ratio}")
        dims.append(c.make_dim(math.floor(np.float32(size) / np.float32(ratio))))
    c.set_output(0, c.make_shape(dims))
    c.set_output(1, c.vector(c.add(dims[1], 1)))
    c.set_output(2, c.vector(c.add(dims[2], 1)))


def fractional_avg_pool_grad(c: InferenceContext) -> None:
    """The image given by input 0."""
    known = c.input_tensor(0) is not None
    c.set_output(0, c.make_shape_from_shape_tensor(0) if known else c.unknown_shape_of_rank(4))


def max_pool_with_argmax(c: InferenceContext) -> None:
    """Both outputs have the shape of MaxPool's."""
    nn.max_pool(c)
    c.set_output(1, c.output(0))


def _merge_pool_grad_grad(c: InferenceContext, pooled: Shape) -> None:
    c.merge(c.input(0), c.input(2))
    c.merge(c.input(1), pooled)


def max_pool_grad_grad(c: InferenceContext) -> None:
    """Like MaxPool of the original input; gradients have the shape of their values."""
    nn.max_pool(c)
    _merge_pool_grad_grad(c, c.output(0))


def max_pool_grad_grad_v2(c: InferenceContext) -> None:
    """Like `max_pool_grad_grad`; window and strides are inputs."""
    nn.max_pool_v2(c)
    _merge_pool_grad_grad(c, c.output(0))


def max_pool_3d_grad_grad(c: InferenceContext) -> None:
    """Like MaxPool3D of the original input."""
    nn.pool_3d(c)
    _merge_pool_grad_grad(c, c.output(0))


def max_pool_grad_grad_with_argmax(c: InferenceContext) -> None:
    """Like MaxPool of the original input; inputs input, gradient, argmax."""
    nn.max_pool(c)
    c.merge(c.input(0), c.input(1))
    c.merge(c.input(2), c.output(0))
