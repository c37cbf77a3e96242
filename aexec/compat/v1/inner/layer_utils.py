"""`tensorflow.python.layers.utils`: sizes and words of layers.

Next to read: `smart_cond.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.inner.smart_cond import smart_cond, smart_constant_value
from aexec.framework import errors
from aexec.graph.tensor_proxy import TensorProxy

__all__ = [
    "constant_value",
    "conv_input_length",
    "conv_output_length",
    "convert_data_format",
    "deconv_output_length",
    "normalize_data_format",
    "normalize_padding",
    "normalize_tuple",
    "smart_cond",
]

_FORMATS = {
    ("channels_last", 3): "NWC",
    ("channels_last", 4): "NHWC",
    ("channels_last", 5): "NDHWC",
    ("channels_first", 3): "NCW",
    ("channels_first", 4): "NCHW",
    ("channels_first", 5): "NCDHW",
}


def constant_value(pred: Any) -> bool | None:
    """The value of a condition; None if it depends on the run, or is that of a variable."""
    return None if isinstance(pred, TensorProxy) else smart_constant_value(pred)


def convert_data_format(data_format: str, ndim: int) -> str:
    """The data format of an op, of a layer's and the rank of its input.  Raises ValueError for others."""
    if data_format not in ("channels_last", "channels_first"):
        raise errors.InvalidValueError(
            f'Invalid data_format: {data_format}. We only support "channels_first" or "channels_last"'
        )
    if not 3 <= ndim <= 5:
        raise errors.InvalidValueError(f"Input rank: {ndim} not supported. We only support input rank 3, 4 or 5.")
    return _FORMATS[data_format, ndim]


def normalize_tuple(value: Any, n: int, name: str) -> tuple[int, ...]:
    """`n` integers, of one or of a sequence.  Raises ValueError for anything else."""
    if isinstance(value, int):
        return (value,) * n
    expected = f"Argument `{name}` must be a tuple of {n} integers. Received: {value}"
    try:
        found = tuple(value)
    except TypeError:
        raise errors.InvalidValueError(expected) from None
    if len(found) != n:
        raise errors.InvalidValueError(expected)
    for element in found:
        try:
            int(element)
        except (TypeError, ValueError):
            raise errors.InvalidValueError(f"{expected} including element {element} of type {type(element)}") from None
    return found


def normalize_data_format(value: str) -> str:
    """In small letters.  Raises ValueError for others than `channels_first` and `channels_last`."""
    return _one_of("data_format", value, ("channels_first", "channels_last"))


def normalize_padding(value: str) -> str:
    """In small letters.  Raises ValueError for others than `valid` and `same`."""
    return _one_of("padding", value, ("valid", "same"))


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value.lower() not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise errors.InvalidValueError(f"The `{argument}` argument must be one of {words}. Received: {value.lower()}.")
    return value.lower()


def conv_output_length(
    input_length: int | None, filter_size: int, padding: str, stride: int, dilation: int = 1
) -> int | None:
    """The size of what a convolution makes, with padding `same`, `valid` or `full`; None for an unknown size."""
    if input_length is None:
        return None
    reach = (filter_size - 1) * dilation
    lost = _by_padding(padding, same=0, valid=reach, full=-reach)
    return -(-(input_length - lost) // stride)


def conv_input_length(output_length: int | None, filter_size: int, padding: str, stride: int) -> int | None:
    """The size of the image that a convolution takes to make one of the given size."""
    if output_length is None:
        return None
    border = _by_padding(padding, same=filter_size // 2, valid=0, full=filter_size - 1)
    return (output_length - 1) * stride - 2 * border + filter_size


def deconv_output_length(input_length: int | None, filter_size: int, padding: str, stride: int) -> int | None:
    """The size of what a transposed convolution makes."""
    if input_length is None:
        return None
    beyond = max(filter_size - stride, 0)
    return input_length * stride + _by_padding(padding, same=0, valid=beyond, full=-(stride + filter_size - 2))


def _by_padding(padding: str, **sizes: int) -> int:
    if padding not in sizes:
        raise AssertionError(f"padding must be one of {' '.join(sizes)}, not {padding!r}")
    return sizes[padding]
