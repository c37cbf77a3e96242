"""Conversions between values, tensors and messages, and a registry of conversions for a program's own classes.

Next to read: `array_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import ops, proto
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import convert_to_tensor as _converted
from aexec.compat.v1.values.sparse import SparseTensor, SparseTensorValue
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.wire.attr_types import TensorAttr
from aexec.graph.conversions import register_conversion
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import constant_array, convert_to_tensor

__all__ = [
    "batch_to_space",
    "convert_to_tensor_or_indexed_slices",
    "convert_to_tensor_or_sparse_tensor",
    "fingerprint",
    "make_ndarray",
    "make_tensor_proto",
    "parallel_stack",
    "register_tensor_conversion_function",
    "required_space_to_batch_paddings",
    "space_to_batch",
    "string_to_hash_bucket_strong",
    "tensor_scatter_nd_update",
]


def convert_to_tensor_or_indexed_slices(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """`tf.convert_to_tensor_or_indexed_slices`: return `IndexedSlices` unchanged, convert other values."""
    return value if isinstance(value, IndexedSlices) else _converted(value, dtype, name)


def convert_to_tensor_or_sparse_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """`tf.convert_to_tensor_or_sparse_tensor`: a `SparseTensorValue` becomes a sparse tensor."""
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        return _converted(value, dtype, name)
    if dtype is not None and value.dtype is not as_dtype(dtype):
        raise RuntimeError(f"Sparse dtype mismatch. Requested: {as_dtype(dtype).name}, Actual: {value.dtype.name}")
    return value


def make_tensor_proto(
    values: Any, dtype: Any = None, shape: Any = None, verify_shape: bool = False, allow_broadcast: bool = False
) -> proto.TensorProto:
    """`tf.make_tensor_proto`: a value as a TensorProto.  With `shape`, a scalar is repeated to fill it.

    Raises:
        ValueError: the value does not fit the shape.
    """
    array, kind = constant_array(values, None if dtype is None else as_dtype(dtype))
    if shape is not None:
        sizes = [int(size) for size in shape]
        if array.size == np.prod(sizes, dtype=int) and not verify_shape:
            array = array.reshape(sizes)
        elif array.size == 1 and not verify_shape:
            array = np.broadcast_to(array.reshape(()), sizes).copy()
        elif list(array.shape) != sizes:
            raise errors.InvalidTypeError(f"Expected tensor's shape: {tuple(sizes)}, but got {array.shape}")
    return TensorAttr(array, kind).to_proto()


def make_ndarray(tensor: proto.TensorProto) -> Any:
    """`tf.make_ndarray`: the array of a message; strings are bytes."""
    return TensorAttr(tensor).array


def register_tensor_conversion_function(
    base_type: type | tuple[type, ...], conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """`tf.register_tensor_conversion_function`: make graph functions accept objects of a class as tensors.

    Args:
        base_type: a class, or a tuple of classes.  The conversion of numbers, arrays, lists and tensors stays.
        conversion_func: called with the value, and with `dtype`, `name` and `as_ref` by name; returns a tensor, or
            NotImplemented.
        priority: functions with smaller numbers are tried first.

    Raises:
        TypeError: `base_type` is not a class, or has a fixed conversion.
    """
    for kind in base_type if isinstance(base_type, tuple) else (base_type,):
        register_conversion(
            kind, lambda value, dtype, name: conversion_func(value, dtype=dtype, name=name, as_ref=False), priority
        )


def fingerprint(data: Any, method: str = "farmhash64", name: str | None = None) -> Tensor:
    """`tf.fingerprint`: 8 bytes for each row."""
    return ops.fingerprint(data, np.array(method.encode(), object), name=name)


# Blocks


def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """`tf.parallel_stack`: stack tensors of the same, fully known shape along a new first axis."""
    tensors = [convert_to_tensor(value) for value in values]
    if any(None in list(tensor.static_shape) for tensor in tensors if tensor.static_shape.rank is not None) or any(
        tensor.static_shape.rank is None for tensor in tensors
    ):
        raise errors.InvalidValueError("the shapes of the values of parallel_stack must be known")
    return ops.pack(tensors, axis=0, name=name)


def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """`tf.required_space_to_batch_paddings`: the least paddings to multiples of the block sizes, and matching crops."""
    with name_scope(name or "required_space_to_batch_paddings"):
        sizes, blocks = convert_to_tensor(input_shape, dtypes.int32), convert_to_tensor(block_shape, dtypes.int32)
        base = (
            ops.zeros_like(ops.pack([blocks, blocks], axis=1))
            if base_paddings is None
            else convert_to_tensor(base_paddings, dtypes.int32)
        )
        before, after = base[:, 0], base[:, 1]
        more = (blocks - (sizes + before + after) % blocks) % blocks
        return ops.pack([before, after + more], axis=1), ops.pack([ops.zeros_like(more), more], axis=1)


def _blocks(block_size: Any, block_shape: Any) -> Any:
    if block_shape is None and block_size is None:
        raise errors.InvalidValueError("block_shape must be given")
    return block_shape if block_shape is not None else [block_size, block_size]


def space_to_batch(
    input: Any, paddings: Any, block_size: int | None = None, name: str | None = None, block_shape: Any = None
) -> Tensor:
    """`tf.space_to_batch`: blocks of the axes after the first become examples of the batch."""
    return ops.space_to_batch_nd(input, _blocks(block_size, block_shape), paddings, name=name)


def batch_to_space(
    input: Any, crops: Any, block_size: int | None = None, name: str | None = None, block_shape: Any = None
) -> Tensor:
    """`tf.batch_to_space`: the inverse of `space_to_batch`."""
    return ops.batch_to_space_nd(input, _blocks(block_size, block_shape), crops, name=name)


def tensor_scatter_nd_update(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """`tf.tensor_scatter_nd_update`: a copy of a tensor with new values at the given indices."""
    return ops.tensor_scatter_update(tensor, indices, updates, name=name)


def string_to_hash_bucket_strong(input: Any, num_buckets: int, key: Any, name: str | None = None) -> Tensor:
    """`tf.string_to_hash_bucket_strong`: hash strings with a key of two integers."""
    return ops.string_to_hash_bucket_strong(input, num_buckets=num_buckets, key=list(key), name=name)
