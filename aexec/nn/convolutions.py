"""Convolutions, forward and transposed, of sequences, images and volumes.

Channels are last unless `data_format` says "NC…".  Sizes of the window (`strides`, `dilations`) are one number, or one
for each of its axes, or one for each axis of the input.
Next to read: `pooling.py`; `aexec/layers/convolutional_layers.py`, which makes the filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "Padding",
    "Sizes",
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
    "conv3d",
    "conv3d_backprop_filter",
    "conv3d_transpose",
    "conv_transpose",
    "convolution",
    "depthwise_conv2d",
    "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input",
    "dilation2d",
    "erosion2d",
    "separable_conv2d",
    "window_sizes",
    "with_space_to_batch",
]

Sizes = int | Sequence[int]
Padding = str | Sequence[Sequence[int]]

conv2d_backprop_filter = ops.conv2d_backprop_filter
conv2d_backprop_input = ops.conv2d_backprop_input
conv3d_backprop_filter = ops.conv3d_backprop_filter_v2
depthwise_conv2d_backprop_filter = ops.depthwise_conv2d_native_backprop_filter
depthwise_conv2d_backprop_input = ops.depthwise_conv2d_native_backprop_input

_FORMATS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def window_sizes(sizes: Sizes, data_format: str, axes: int = 2) -> list[int]:
    """One number for each axis of an input whose window has `axes` axes.

    Raises:
        InvalidArgumentError: `sizes` has neither one number, nor one for each axis of the window or of the input.
    """
    listed = [int(sizes)] if isinstance(sizes, int | np.integer) else list(sizes)
    if len(listed) == axes + 2:
        return listed
    if len(listed) == 1:
        listed *= axes
    if len(listed) != axes:
        raise errors.InvalidValueError(f"expected 1, {axes} or {axes + 2} sizes, got {listed}")
    return [1, 1, *listed] if data_format.startswith("NC") else [1, *listed, 1]


def _padded(padding: Padding) -> dict[str, Any]:
    """The attrs of an op for this padding."""
    if isinstance(padding, str):
        return {"padding": padding.upper(), "explicit_paddings": []}
    return {"padding": "EXPLICIT", "explicit_paddings": [size for pair in padding for size in pair]}


# Forward


def conv1d(
    input: Any,
    filters: Any,
    stride: Sizes = 1,
    padding: Padding = "VALID",
    *,
    data_format: str = "NWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """A convolution of sequences, [batch, width, channels], with filters [width, channels in, channels out]."""
    with name_scope(name or "conv1d"):
        axis = _axis_of_width(data_format)
        pairs = [list(pair) for pair in padding] if not isinstance(padding, str) else None
        made = conv2d(
            ops.expand_dims(convert_to_tensor(input), axis),
            ops.expand_dims(convert_to_tensor(filters), 0),
            _beside_one(stride, data_format),
            padding if pairs is None else [*pairs[:axis], [0, 0], *pairs[axis:]],
            data_format="NCHW" if data_format == "NCW" else "NHWC",
            dilations=_beside_one(dilations, data_format),
        )
        return ops.squeeze(made, squeeze_dims=[axis])


def conv2d(
    input: Any,
    filter: Any,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    *,
    data_format: str = "NHWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """A convolution of images.

    Args:
        input: [batch, height, width, channels].
        filter: [height, width, channels in, channels out].
        padding: "SAME", "VALID", or a pair of numbers for each axis of the input.
    """
    return ops.conv2d(
        input,
        filter,
        strides=window_sizes(strides, data_format),
        **_padded(padding),
        data_format=data_format,
        dilations=window_sizes(dilations, data_format),
        name=name,
    )


def conv3d(
    input: Any,
    filter: Any,
    strides: Sizes = 1,
    padding: str = "VALID",
    *,
    data_format: str = "NDHWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """A convolution of volumes, [batch, depth, height, width, channels], with filters [depth, height, width, in,
    out].
    """
    return ops.conv3d(
        input,
        filter,
        strides=window_sizes(strides, data_format, 3),
        padding=padding.upper(),
        data_format=data_format,
        dilations=window_sizes(dilations, data_format, 3),
        name=name,
    )


def convolution(
    input: Any,
    filter: Any,
    padding: str = "VALID",
    strides: Sizes = 1,
    *,
    dilations: Sizes = 1,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of sequences, images or volumes, depending on the rank of the input.

    Raises:
        InvalidArgumentError: the rank of input and filter is unknown, or not 3, 4 or 5.
    """
    axes = _window_axes(input, filter)
    made: Callable[..., Tensor] = {1: conv1d, 2: conv2d, 3: conv3d}[axes]
    with name_scope(name or "convolution") as scope:
        known = data_format or _FORMATS[axes][0]
        return made(input, filter, strides, padding, data_format=known, dilations=dilations, name=scope)


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    *,
    data_format: str = "NHWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """A convolution of each channel separately.

    Args:
        filter: [height, width, channels in, channels out for each of these].

    Returns:
        Images with the output channels of the first channel, then those of the second, and so on.
    """
    with name_scope(name or "depthwise") as scope:
        return ops.depthwise_conv2d_native(
            input,
            filter,
            strides=window_sizes(strides, data_format),
            **_padded(padding),
            data_format=data_format,
            dilations=window_sizes(dilations, data_format),
            name=scope,
        )


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    *,
    data_format: str = "NHWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """`depthwise_conv2d`, then a linear combination of its channels at each position.

    Args:
        pointwise_filter: [1, 1, channels in × multiplier, channels out].
    """
    with name_scope(name or "separable_conv2d") as scope:
        apart = depthwise_conv2d(
            input,
            depthwise_filter,
            strides,
            padding,
            data_format=data_format,
            dilations=dilations,
            name="depthwise",
        )
        return conv2d(apart, pointwise_filter, data_format=data_format, name=scope)


def atrous_conv2d(value: Any, filters: Any, rate: int, padding: Padding, name: str | None = None) -> Tensor:
    """`conv2d` whose filter's rows and columns are `rate` apart."""
    return conv2d(value, filters, 1, padding, dilations=rate, name=name or "convolution")


# Transposed: the gradients of the functions above as functions


def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Sizes,
    padding: str = "SAME",
    *,
    data_format: str = "NWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """The transpose of `conv1d`: filters are [width, channels out, channels in], `output_shape` has 3 sizes."""
    with name_scope(name or "conv1d_transpose"):
        axis = _axis_of_width(data_format)
        shape = ops.concat_v2([output_shape[:axis], [1], output_shape[axis:]], 0)
        made = conv2d_transpose(
            ops.expand_dims(convert_to_tensor(input), axis),
            ops.expand_dims(convert_to_tensor(filters), 0),
            shape,
            _beside_one(strides, data_format),
            padding,
            data_format="NCHW" if data_format == "NCW" else "NHWC",
            dilations=_beside_one(dilations, data_format),
        )
        return ops.squeeze(made, squeeze_dims=[axis])


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Sizes,
    padding: Padding = "SAME",
    *,
    data_format: str = "NHWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """The transpose of `conv2d`, whose gradient it is: it makes larger images of smaller ones.

    Args:
        input: [batch, height, width, channels].
        filters: [height, width, channels out, channels in].
        output_shape: 4 sizes, or a vector of them; `conv2d` of such images gives the shape of `input`.
    """
    return ops.conv2d_backprop_input(
        output_shape,
        filters,
        input,
        strides=window_sizes(strides, data_format),
        **_padded(padding),
        data_format=data_format,
        dilations=window_sizes(dilations, data_format),
        name=name or "conv2d_transpose",
    )


def conv3d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Sizes,
    padding: str = "SAME",
    *,
    data_format: str = "NDHWC",
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """The transpose of `conv3d`: filters are [depth, height, width, channels out, channels in]."""
    return ops.conv3d_backprop_input_v2(
        output_shape,
        filters,
        input,
        strides=window_sizes(strides, data_format, 3),
        padding=padding.upper(),
        data_format=data_format,
        dilations=window_sizes(dilations, data_format, 3),
        name=name or "conv3d_transpose",
    )


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Sizes,
    padding: str = "SAME",
    *,
    data_format: str | None = None,
    dilations: Sizes = 1,
    name: str | None = None,
) -> Tensor:
    """The transpose of `convolution`, of sequences, images or volumes.

    Raises:
        InvalidArgumentError: the rank of input and filter is unknown, or not 3, 4 or 5.
    """
    axes = _window_axes(input, filters)
    made: Callable[..., Tensor] = {1: conv1d_transpose, 2: conv2d_transpose, 3: conv3d_transpose}[axes]
    known = data_format or _FORMATS[axes][0]
    with name_scope(name or "conv_transpose") as scope:
        return made(input, filters, output_shape, strides, padding, data_format=known, dilations=dilations, name=scope)


def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: int, padding: Padding, name: str | None = None
) -> Tensor:
    """The transpose of `atrous_conv2d`: filters are [height, width, channels out, channels in]."""
    name = name or "atrous_conv2d_transpose"
    return conv2d_transpose(value, filters, output_shape, 1, padding, dilations=rate, name=name)


# Operations like convolutions


def dilation2d(input: Any, filter: Any, strides: Sizes, rates: Sizes, padding: str, name: str | None = None) -> Tensor:
    """Morphological dilation of grey images: the largest of `image + filter` in each window.

    Args:
        filter: [height, width, channels].
        rates: the distance of the filter's rows and columns.
    """
    sizes = window_sizes(strides, "NHWC"), window_sizes(rates, "NHWC")
    return ops.dilation2d(input, filter, strides=sizes[0], rates=sizes[1], padding=padding.upper(), name=name)


def erosion2d(value: Any, kernel: Any, strides: Sizes, rates: Sizes, padding: str, name: str | None = None) -> Tensor:
    """The smallest of `image - filter` in each window, with the filter flipped; arguments as of `dilation2d`."""
    with name_scope(name or "erosion2d"):
        turned = ops.reverse_v2(convert_to_tensor(kernel), [0, 1])
        most = dilation2d(ops.neg(convert_to_tensor(value)), turned, strides, rates, padding)
        return ops.neg(most)


def with_space_to_batch(
    input: Any,
    dilation_rate: Sequence[int],
    padding: str,
    op: Callable[[Tensor, Any, str], Tensor],
    filter_shape: Sequence[int] | None = None,
) -> Tensor:
    """Apply `op`, which has no dilation, with dilation: to every `dilation_rate`-th row and column separately.

    Args:
        input: [batch, *sizes, …], with known sizes.
        dilation_rate: for each axis after the batch.
        padding: "VALID", or "SAME", for which `filter_shape` gives the window's size.
        op: (input, dilation 1 for each axis, "VALID") → output; if all rates are 1, with the given padding.

    Raises:
        InvalidArgumentError: "SAME" without `filter_shape`, or unknown sizes.
    """
    rates = [int(rate) for rate in dilation_rate]
    value = convert_to_tensor(input)
    if all(rate == 1 for rate in rates):
        return op(value, rates, padding.upper())
    sizes = list(value.static_shape)[1 : len(rates) + 1] if value.static_shape.rank else [None]
    known = [size for size in sizes if size is not None]
    if len(known) != len(rates):
        raise errors.InvalidValueError(f"the sizes of the input must be known, got {value.static_shape}")
    before, after = [0] * len(rates), [0] * len(rates)
    if padding.upper() == "SAME":
        if filter_shape is None:
            raise errors.InvalidValueError("filter_shape must be given for SAME padding")
        whole = [rate * (size - 1) for rate, size in zip(rates, filter_shape, strict=False)]
        before, after = [size // 2 for size in whole], [size - size // 2 for size in whole]
    # Rows are added so that their number is a multiple of each rate, and are cut off again.
    padded = [size + one + other for size, one, other in zip(known, before, after, strict=True)]
    more = [-size % rate for size, rate in zip(padded, rates, strict=True)]
    paddings = [[one, other + extra] for one, other, extra in zip(before, after, more, strict=True)]
    apart = ops.space_to_batch_nd(value, rates, paddings)
    made = op(apart, [1] * len(rates), "VALID")
    return ops.batch_to_space_nd(made, rates, [[0, extra] for extra in more])


def _window_axes(input: Any, filters: Any) -> int:
    ranks = convert_to_tensor(input).static_shape.rank, convert_to_tensor(filters).static_shape.rank
    rank = ranks[0] if ranks[0] is not None else ranks[1]
    if rank not in (3, 4, 5):
        raise errors.InvalidValueError(f"the rank of input or filter must be known, and 3, 4 or 5; it is {rank}")
    return rank - 2


def _axis_of_width(data_format: str) -> int:
    return 2 if data_format == "NCW" else 1


def _beside_one(sizes: Sizes, data_format: str) -> list[int]:
    """Sizes for sequences as sizes for images of height 1."""
    width = window_sizes(sizes, data_format, 1)
    axis = _axis_of_width(data_format)
    return [*width[:axis], 1, *width[axis:]]
