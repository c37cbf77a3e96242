"""`tf.compat`: conversion between strings and bytes; and `tf.compat.v1`, which is `tf` itself."""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np

from aexec.compat import v1
from aexec.framework.errors import InvalidTypeError

__all__ = [
    "as_bytes",
    "as_str",
    "as_str_any",
    "as_text",
    "bytes_or_text_types",
    "complex_types",
    "forward_compatible",
    "integral_types",
    "path_to_str",
    "real_types",
    "v1",
]

integral_types = (numbers.Integral, np.integer)
real_types = (numbers.Real, np.integer, np.floating)
complex_types = (numbers.Complex, np.number)
bytes_or_text_types = (bytes, str)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """`tf.compat.as_bytes`.  Raises TypeError for other types."""
    if isinstance(bytes_or_text, bytearray):
        return bytes(bytes_or_text)
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text
    raise InvalidTypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """`tf.compat.as_text`.  Raises TypeError for other types."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    raise InvalidTypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """`tf.compat.as_str_any`: also converts other values than strings."""
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: Any) -> Any:
    """`tf.compat.path_to_str`."""
    return as_str_any(os.fspath(path)) if hasattr(path, "__fspath__") else path


def forward_compatible(year: int, month: int, day: int) -> bool:
    """`tf.compat.forward_compatible`: always True, since graphs are for this version."""
    return True
