"""Pooling: one value for each window of a sequence, an image or a volume.

Sizes and formats are as in `convolutions.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.convolutions import Padding, Sizes, window_sizes, with_space_to_batch

__all__ = [
    "avg_pool",
    "avg_pool1d",
    "avg_pool3d",
    "max_pool",
    "max_pool1d",
    "max_pool3d",
    "max_pool_with_argmax",
    "pool",
]


def max_pool(
    value: Any,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    *,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The largest value of each window of images.

    Args:
        ksize: the window's size.
        padding: "SAME", "VALID", or a pair of numbers for each axis of the input.
    """
    explicit = [] if isinstance(padding, str) else [size for pair in padding for size in pair]
    return ops.max_pool(
        value,
        window_sizes(ksize, data_format),
        window_sizes(strides, data_format),
        padding=padding.upper() if isinstance(padding, str) else "EXPLICIT",
        explicit_paddings=explicit,
        data_format=data_format,
        name=name,
    )


def avg_pool(
    value: Any, ksize: Sizes, strides: Sizes, padding: str, *, data_format: str = "NHWC", name: str | None = None
) -> Tensor:
    """The mean of each window of images, without the padding."""
    sizes = window_sizes(ksize, data_format), window_sizes(strides, data_format)
    return ops.avg_pool(value, *sizes, padding=padding.upper(), data_format=data_format, name=name)


def max_pool1d(
    input: Any, ksize: Sizes, strides: Sizes, padding: str, *, data_format: str = "NWC", name: str | None = None
) -> Tensor:
    """The largest value of each window of sequences."""
    return _pool1d(max_pool, "MaxPool1d", input, ksize, strides, padding, data_format, name)


def avg_pool1d(
    input: Any, ksize: Sizes, strides: Sizes, padding: str, *, data_format: str = "NWC", name: str | None = None
) -> Tensor:
    """The mean of each window of sequences."""
    return _pool1d(avg_pool, "AvgPool1D", input, ksize, strides, padding, data_format, name)


def _pool1d(
    pooled: Any,
    called: str,
    input: Any,
    ksize: Sizes,
    strides: Sizes,
    padding: str,
    data_format: str,
    name: str | None,
) -> Tensor:
    """Pool sequences as images of height 1."""
    with name_scope(name or called):
        axis = 2 if data_format == "NCW" else 1
        sizes = [window_sizes(size, data_format, 1) for size in (ksize, strides)]
        made = pooled(
            ops.expand_dims(convert_to_tensor(input), axis),
            *([*size[:axis], 1, *size[axis:]] for size in sizes),
            padding,
            data_format="NCHW" if data_format == "NCW" else "NHWC",
        )
        return ops.squeeze(made, squeeze_dims=[axis])


def max_pool3d(
    input: Any, ksize: Sizes, strides: Sizes, padding: str, *, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """The largest value of each window of volumes."""
    sizes = window_sizes(ksize, data_format, 3), window_sizes(strides, data_format, 3)
    return ops.max_pool3d(input, *sizes, padding=padding.upper(), data_format=data_format, name=name)


def avg_pool3d(
    input: Any, ksize: Sizes, strides: Sizes, padding: str, *, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """The mean of each window of volumes, without the padding."""
    sizes = window_sizes(ksize, data_format, 3), window_sizes(strides, data_format, 3)
    return ops.avg_pool3d(input, *sizes, padding=padding.upper(), data_format=data_format, name=name)


def max_pool_with_argmax(
    input: Any,
    ksize: Sizes,
    strides: Sizes,
    padding: str,
    *,
    output_dtype: Any = "int64",
    include_batch_in_index: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The largest value of each window of images, and its position: `(y * width + x) * channels + c`.

    Args:
        include_batch_in_index: the position also counts the images before.
    """
    sizes = window_sizes(ksize, "NHWC"), window_sizes(strides, "NHWC")
    return ops.max_pool_with_argmax(
        input,
        *sizes,
        padding=padding.upper(),
        Targmax=output_dtype,
        include_batch_in_index=include_batch_in_index,
        name=name,
    )


def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    padding: str,
    *,
    dilations: Any = None,
    strides: Any = None,
    name: str | None = None,
) -> Tensor:
    """Pooling of sequences, images or volumes, channels last, depending on the length of `window_shape`.

    Args:
        pooling_type: "MAX" or "AVG".
        dilations: the distance of the window's elements, for each axis; requires strides of 1.

    Raises:
        InvalidArgumentError: the type is unknown, there are not one to three axes, or both strides and dilations.
    """
    axes = len(window_shape)
    functions = {
        ("MAX", 1): max_pool1d,
        ("MAX", 2): max_pool,
        ("MAX", 3): max_pool3d,
        ("AVG", 1): avg_pool1d,
        ("AVG", 2): avg_pool,
        ("AVG", 3): avg_pool3d,
    }
    made_of: Any = functions.get((pooling_type, axes))
    if made_of is None:
        raise errors.InvalidValueError(f"no pooling {pooling_type!r} over {axes} axes")
    rates, steps = list(dilations or [1] * axes), list(strides or [1] * axes)
    if any(rate > 1 for rate in rates) and any(step > 1 for step in steps):
        raise errors.InvalidValueError("strides > 1 not supported in conjunction with dilations > 1")
    with name_scope(name or f"{pooling_type.lower()}_pool") as scope:

        def pooled_apart(part: Tensor, rates: Any, how: str) -> Tensor:
            made: Tensor = made_of(part, list(window_shape), steps, how, name=scope if part is value else None)
            return made

        value = convert_to_tensor(input)
        return with_space_to_batch(value, rates, padding, pooled_apart, window_shape)
