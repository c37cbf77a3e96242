"""Convolutions that make their filters: forward, transposed and separable.

`kernel_size`, `strides` and `dilation_rate` are one number, or one for each axis of the window; `padding` is "valid" or
"same"; `data_format` "channels_last" or "channels_first".  The other arguments are those of `dense`.
Next to read: `aexec/nn/convolutions.py`, whose functions take the filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

from aexec import nn, ops
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.graph.nodes.node import Tensor
from aexec.layers.layer import Activation, as_inputs, known_size, layer_scope, one_each, with_activation
from aexec.variables.initializers import Initializer, Zeros
from aexec.variables.regularizers import Regularizer
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import get_variable
from aexec.variables.variable_store import Reuse

__all__ = [
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "format_of",
    "separable_conv1d",
    "separable_conv2d",
]


def format_of(data_format: str, axes: int) -> str:
    """The format's name in ops.  Raises InvalidArgumentError unless it is channels_last or channels_first."""
    letters = {1: "W", 2: "HW", 3: "DHW"}[axes]
    if data_format == "channels_last":
        return f"N{letters}C"
    if data_format == "channels_first":
        return f"NC{letters}"
    raise errors.InvalidValueError(f"data_format must be 'channels_last' or 'channels_first', got {data_format!r}")


def _channel_axis(data_format: str) -> int:
    return 1 if data_format.startswith("NC") else -1


class _OfWeights(TypedDict, total=False):
    """Arguments for making and regularizing the weights; as of `dense`."""

    kernel_initializer: Initializer | None
    bias_initializer: Initializer | None
    kernel_regularizer: Regularizer | None
    bias_regularizer: Regularizer | None
    activity_regularizer: Regularizer | None
    kernel_constraint: Activation | None
    bias_constraint: Activation | None
    trainable: bool
    name: str | None
    reuse: Reuse


class _OfSeparableWeights(TypedDict, total=False):
    depthwise_initializer: Initializer | None
    pointwise_initializer: Initializer | None
    bias_initializer: Initializer | None
    depthwise_regularizer: Regularizer | None
    pointwise_regularizer: Regularizer | None
    bias_regularizer: Regularizer | None
    activity_regularizer: Regularizer | None
    depthwise_constraint: Activation | None
    pointwise_constraint: Activation | None
    bias_constraint: Activation | None
    trainable: bool
    name: str | None
    reuse: Reuse


def conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfWeights],
) -> Tensor:
    """`nn.conv1d` of sequences [batch, width, channels] with `kernel` [width, channels, filters], plus `bias`."""
    sizes = (kernel_size, strides, dilation_rate)
    return _convolved("conv1d", 1, inputs, filters, sizes, padding, data_format, activation, use_bias, options)


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfWeights],
) -> Tensor:
    """`nn.conv2d` of images [batch, height, width, channels] with `kernel` [height, width, channels, filters]."""
    sizes = (kernel_size, strides, dilation_rate)
    return _convolved("conv2d", 2, inputs, filters, sizes, padding, data_format, activation, use_bias, options)


def conv3d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfWeights],
) -> Tensor:
    """`nn.conv3d` of volumes [batch, depth, height, width, channels] with `kernel` [*kernel_size, channels,
    filters].
    """
    sizes = (kernel_size, strides, dilation_rate)
    return _convolved("conv3d", 3, inputs, filters, sizes, padding, data_format, activation, use_bias, options)


def _convolved(
    kind: str,
    axes: int,
    inputs: Any,
    filters: int,
    sizes: Sequence[Any],
    padding: str,
    data_format: str,
    activation: Activation | None,
    use_bias: bool,
    options: _OfWeights,
) -> Tensor:
    with layer_scope(options.get("name"), kind, options.get("reuse")):
        x = as_inputs(inputs, axes + 2)
        layout = format_of(data_format, axes)
        window, strides, rates = [
            one_each(size, axes, what)
            for size, what in zip(sizes, ("kernel_size", "strides", "dilation_rate"), strict=True)
        ]
        channels = known_size(x, _channel_axis(layout), "the channel dimension of the inputs")
        kernel = _weight("kernel", [*window, channels, filters], x.dtype.base, options)
        bias = _weight("bias", [filters], x.dtype.base, options, Zeros()) if use_bias else None
        convolved: Callable[..., Tensor] = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}[axes]
        called = f"Conv{axes}D"
        made = convolved(x, kernel, strides, padding.upper(), data_format=layout, dilations=rates, name=called)
        return _biased(made, bias, layout, activation, options)


def conv2d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfWeights],
) -> Tensor:
    """`nn.conv2d_transpose`: images `strides` times as large, with `kernel` [height, width, filters, channels]."""
    return _transposed(
        "conv2d_transpose",
        2,
        inputs,
        filters,
        (kernel_size, strides),
        padding,
        data_format,
        activation,
        use_bias,
        options,
    )


def conv3d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfWeights],
) -> Tensor:
    """`nn.conv3d_transpose`: volumes `strides` times as large, with `kernel` [*kernel_size, filters, channels]."""
    return _transposed(
        "conv3d_transpose",
        3,
        inputs,
        filters,
        (kernel_size, strides),
        padding,
        data_format,
        activation,
        use_bias,
        options,
    )


def _transposed(
    kind: str,
    axes: int,
    inputs: Any,
    filters: int,
    sizes: Sequence[Any],
    padding: str,
    data_format: str,
    activation: Activation | None,
    use_bias: bool,
    options: _OfWeights,
) -> Tensor:
    with layer_scope(options.get("name"), kind, options.get("reuse")):
        x = as_inputs(inputs, axes + 2)
        layout = format_of(data_format, axes)
        window, strides = one_each(sizes[0], axes, "kernel_size"), one_each(sizes[1], axes, "strides")
        channels = known_size(x, _channel_axis(layout), "the channel dimension of the inputs")
        kernel = _weight("kernel", [*window, filters, channels], x.dtype.base, options)
        bias = _weight("bias", [filters], x.dtype.base, options, Zeros()) if use_bias else None
        shape = ops.shape(x)
        first = 2 if layout.startswith("NC") else 1
        known = list(x.static_shape)[first : first + axes]
        larger: list[Any] = []
        for axis, (size, step, width) in enumerate(zip(known, strides, window, strict=True)):
            # The part of the window beyond one stride.
            more = max(width - step, 0) if padding.lower() == "valid" else 0
            given = shape[first + axis] if size is None else size
            larger.append(given * step + more)
        wanted = [shape[0], filters, *larger] if first == 2 else [shape[0], *larger, filters]
        convolved: Callable[..., Tensor] = {2: nn.conv2d_transpose, 3: nn.conv3d_transpose}[axes]
        made = convolved(x, kernel, ops.pack(wanted, name="stack"), strides, padding.upper(), data_format=layout)
        return _biased(made, bias, layout, activation, options)


def separable_conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    depth_multiplier: int = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfSeparableWeights],
) -> Tensor:
    """Like `separable_conv2d`, for sequences."""
    with layer_scope(options.get("name"), "separable_conv1d", options.get("reuse")):
        x = as_inputs(inputs, 3)
        layout = format_of(data_format, 1)
        width, step, rate = (one_each(size, 1, "kernel_size") for size in (kernel_size, strides, dilation_rate))
        apart, mixing, bias = _separable_weights(x, layout, width, filters, depth_multiplier, use_bias, options)
        # As images of height 1.
        axis = 2 if layout == "NCW" else 1
        made = nn.separable_conv2d(
            ops.expand_dims(x, axis),
            ops.expand_dims(apart, 0),
            ops.expand_dims(mixing, 0),
            step * 2,
            padding.upper(),
            data_format="NCHW" if layout == "NCW" else "NHWC",
            dilations=rate * 2,
        )
        if bias is not None:
            made = ops.bias_add(made, bias, data_format="NCHW" if layout == "NCW" else "NHWC")
        return with_activation(ops.squeeze(made, squeeze_dims=[axis]), activation, options.get("activity_regularizer"))


def separable_conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    depth_multiplier: int = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    **options: Unpack[_OfSeparableWeights],
) -> Tensor:
    """`nn.separable_conv2d`: each channel is convolved separately, then they are mixed.

    Weights are `depthwise_kernel` [height, width, channels, depth_multiplier], `pointwise_kernel` [1, 1, channels ×
    depth_multiplier, filters] and `bias`.

    Args:
        depth_multiplier: the number of channels that each one is convolved to.
    """
    with layer_scope(options.get("name"), "separable_conv2d", options.get("reuse")):
        x = as_inputs(inputs, 4)
        layout = format_of(data_format, 2)
        window, steps, rates = (one_each(size, 2, "kernel_size") for size in (kernel_size, strides, dilation_rate))
        apart, mixing, bias = _separable_weights(x, layout, window, filters, depth_multiplier, use_bias, options)
        made = nn.separable_conv2d(x, apart, mixing, steps, padding.upper(), data_format=layout, dilations=rates)
        return _biased(made, bias, layout, activation, options)


def _separable_weights(
    x: Tensor,
    layout: str,
    window: Sequence[int],
    filters: int,
    multiplier: int,
    use_bias: bool,
    options: _OfSeparableWeights,
) -> tuple[Variable, Variable, Variable | None]:
    channels = known_size(x, _channel_axis(layout), "the channel dimension of the inputs")
    ones = [1] * len(window)
    return (
        _weight("depthwise_kernel", [*window, channels, multiplier], x.dtype.base, options),
        _weight("pointwise_kernel", [*ones, channels * multiplier, filters], x.dtype.base, options),
        _weight("bias", [filters], x.dtype.base, options, Zeros()) if use_bias else None,
    )


def _weight(name: str, shape: list[int], dtype: DType, options: Any, default: Initializer | None = None) -> Variable:
    """A weight; its options have its name as prefix, without `_kernel` if it is one of several."""
    called = name.removesuffix("_kernel")
    return get_variable(
        name,
        shape,
        dtype,
        options.get(f"{called}_initializer", default),
        regularizer=options.get(f"{called}_regularizer"),
        constraint=options.get(f"{called}_constraint"),
        trainable=options.get("trainable", True),
    )


def _biased(outputs: Tensor, bias: Variable | None, layout: str, activation: Activation | None, options: Any) -> Tensor:
    if bias is not None:
        outputs = ops.bias_add(outputs, bias, data_format="NCHW" if layout.startswith("NC") else "NHWC")
    return with_activation(outputs, activation, options.get("activity_regularizer"))
