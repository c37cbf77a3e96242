"""Convolutions and pooling of images, [batch, height, width, channels] unless `data_format` says "NCHW"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.graph.node import Tensor

__all__ = ["avg_pool", "conv2d", "max_pool"]


def conv2d(
    input: Any,
    filter: Any,
    strides: int | Sequence[int] = 1,
    padding: str | Sequence[Sequence[int]] = "VALID",
    *,
    data_format: str = "NHWC",
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Tensor:
    """A two-dimensional convolution.

    Args:
        input: images.
        filter: [height, width, channels in, channels out].
        strides, dilations: one number, two for height and width, or four, as the images have axes.
        padding: "SAME", "VALID", or a pair of numbers for each axis.
    """
    explicit = padding if not isinstance(padding, str) else ()
    return ops.conv2d(
        input,
        filter,
        strides=_four(strides, data_format),
        padding=padding if isinstance(padding, str) else "EXPLICIT",
        explicit_paddings=[size for pair in explicit for size in pair],
        data_format=data_format,
        dilations=_four(dilations, data_format),
        name=name,
    )


def max_pool(
    value: Any,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    *,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The largest value of each window.  Arguments as for `conv2d`; `ksize` is the window's size."""
    sizes = _four(ksize, data_format), _four(strides, data_format)
    return ops.max_pool(value, *sizes, padding=padding, data_format=data_format, name=name)


def avg_pool(
    value: Any,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    *,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The mean of each window.  Arguments as for `max_pool`."""
    sizes = _four(ksize, data_format), _four(strides, data_format)
    return ops.avg_pool(value, *sizes, padding=padding, data_format=data_format, name=name)


def _four(sizes: int | Sequence[int], data_format: str) -> list[int]:
    """One number for each axis of the images."""
    listed = [sizes] * 2 if isinstance(sizes, int) else list(sizes)
    if len(listed) == 1:
        listed *= 2
    if len(listed) == 4:
        return listed
    return [1, 1, *listed] if data_format == "NCHW" else [1, *listed, 1]
