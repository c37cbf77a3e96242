"""Tensors of variants: boxing Python objects, and zeros and sums of the tensors that variants hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import announce
from aexec.framework.memory.tensor_buffer import dtype_of
from aexec.framework.shape import shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.framework.wire import variant
from aexec.framework.zeros import zeros_of_type

__all__ = ["add_tensors", "boxed", "is_of_type", "map_pairs", "variant_text", "zeros_like_tensor"]


def boxed(value: Any) -> Any:
    """A scalar variant tensor that holds `value`."""
    box = np.empty((), object)
    box[()] = value
    return box


def variant_text(value: Any) -> str:
    """The text of a variant in messages."""
    return f"Variant<type: {variant.type_name_of(value)} value: {abridged(repr(value))}>"


def _once_for_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a recursive function of tensors compute each result once per outermost call.

    A list may hold the same list many times, at many levels: without this a few lists would cause billions of calls.
    """
    here = threading.local()

    def apply(*tensors: Any) -> Any:
        known: dict[Any, Any] | None = getattr(here, "known", None)
        if known is None:
            here.known = {}
            try:
                return function(*tensors)
            finally:
                here.known = None
        key = tuple(map(id, tensors))
        if key not in known:
            known[key] = function(*tensors), tensors  # keeping them keeps their ids unique
        return known[key][0]

    return apply


@_once_for_each
def zeros_like_tensor(tensor: Any) -> Any:
    """Zeros for a tensor that a variant holds; nested variants become their own zeros."""
    if tensor.dtype.kind != "O" or dtype_of(tensor) is dtypes.string:
        check_inline(tensor.nbytes * COPY_NS)
        announce(tensor.nbytes)
        return zeros_of_type(tensor.shape, dtype_of(tensor))
    out = np.empty(tensor.size, object)
    for position, value in enumerate(tensor.ravel()):
        out[position] = None if value is None else variant.zeros_like(value)
    return out.reshape(tensor.shape)


@_once_for_each
def add_tensors(a: Any, b: Any) -> Any:
    """The sum of two tensors that variants hold.

    Raises:
        InvalidArgumentError: they differ in type or shape, or their type has no sum.
    """
    dtype = dtype_of(a)
    if dtype is not dtype_of(b):
        raise errors.InvalidArgumentError(
            f"Trying to add two tensors with incompatible element types. One is {dtype} and the other is {dtype_of(b)}"
        )
    if a.shape != b.shape:
        raise errors.InvalidArgumentError(
            "Trying to add two tensors with incompatible element shapes. "
            f"One is {shape_text(a.shape)} and the other is {shape_text(b.shape)}"
        )
    if not a.size:
        return a
    if dtype is dtypes.variant:
        return map_pairs(variant.add, a, b)
    if dtype not in dtypes.NUMBER:
        raise errors.InvalidArgumentError(f"Trying to add unsupported dtype {dtype.enum} ({dtype})")
    check_inline(a.nbytes * COPY_NS)
    announce(a.nbytes)
    return np.add(a, b)


def is_of_type(tensor: Any, dtype: DType) -> bool:
    """True if a tensor has this type, as far as its elements tell."""
    return tensor.dtype == dtype.np and (not dtype.np.hasobject or not tensor.size or dtype_of(tensor) is dtype)


def map_pairs(function: Any, a: Any, b: Any) -> Any:
    """`function` of each pair of elements of two object arrays of one shape."""
    out = np.empty(a.size, object)
    for position, pair in enumerate(zip(a.ravel(), b.ravel(), strict=True)):
        out[position] = function(*pair)
    return out.reshape(a.shape)
