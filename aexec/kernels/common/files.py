"""Helpers of kernels that use files: these always run in a worker thread, and take names as scalars."""

from __future__ import annotations

import math
from typing import Any

from aexec.framework import errors
from aexec.framework.shape import shape_text

__all__ = ["blocking", "scalar_of"]


def blocking(*_inputs: Any) -> float:
    """The cost of a kernel that may wait for a disk or a network: it never runs on the event loop."""
    return math.inf


def scalar_of(tensor: Any, complaint: str) -> Any:
    """The element of a scalar.  Raises InvalidArgumentError (`complaint` and the shape) for another shape."""
    if tensor.ndim:
        raise errors.InvalidArgumentError(f"{complaint} {shape_text(tensor.shape)}")
    return tensor.item()
