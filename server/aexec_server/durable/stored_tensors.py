"""Tensors as bytes: the elements of numbers in C order, a TensorProto of strings."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from aexec import errors, proto
from aexec.hosting import dtypes, tensor_from_proto, tensor_to_proto

__all__ = ["tensor_bytes", "tensor_of_bytes"]


def tensor_bytes(array: Any, dtype: dtypes.DType) -> bytes | memoryview:
    """The bytes of a tensor; those of a contiguous array of numbers are not copied."""
    if dtype.np.hasobject:
        return tensor_to_proto(array, dtype).SerializeToString()
    contiguous = np.ascontiguousarray(array, dtype.np)
    return contiguous.reshape(-1).view(np.uint8).data


def tensor_of_bytes(data: bytes | bytearray, dtype: dtypes.DType, shape: tuple[int, ...]) -> Any:
    """The tensor of these bytes.  Raises DataLossError if they are not those of such a tensor."""
    try:
        if dtype.np.hasobject:
            array = tensor_from_proto(proto.TensorProto.FromString(bytes(data)))
        else:
            array = np.frombuffer(data, dtype.np)
        return array.reshape(shape)
    except (ValueError, errors.OpError, DecodeError) as error:
        raise errors.DataLossError(f"A stored tensor of {dtype.name} cannot be read: {error}") from None
