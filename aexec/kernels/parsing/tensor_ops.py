"""Serialised tensors: strings that hold a TensorProto.

Next to read: `aexec/framework/tensor_codec.py`.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors, loop_budget, tensor_codec, wire_format
from aexec.framework.dtypes import DType
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.framework.wire_format import put_varint
from aexec.kernels.common.strings import string_array, string_cost

__all__: list[str] = []

_COST = 20.0
_PIECE = loop_budget.DEFAULT.pieces(loop_budget.COPY_NS)
_CONTENT_TAG = bytes([proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER << 3 | 2])


@kernel("SerializeTensor", T=dtypes.ALL, cost=_COST)
def serialize_tensor(c: OpKernelConstruction) -> Compute:
    """The tensor as one string."""
    dtype = c.attr("T")

    def compute(tensor: Any) -> Any:
        if dtype.size and tensor.nbytes > _PIECE:
            return string_array([_serialized(tensor, dtype)], ())
        message = tensor_codec.to_proto(tensor, dtype, compact=False)
        message.tensor_shape.SetInParent()  # written for scalars too
        return string_array([message.SerializeToString(deterministic=True)], ())

    return compute


def _serialized(tensor: Any, dtype: DType) -> bytes:
    """The same bytes for a large tensor, copied in pieces: copies of arrays and messages keep the interpreter's lock.

    `join` lets go of it, and the content is the message's last field.
    """
    message = tensor_codec.to_proto(np.empty(0, tensor.dtype), dtype)
    message.tensor_shape.CopyFrom(proto.TensorShapeProto(dim=[{"size": n} for n in tensor.shape]))
    content = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    pieces = []
    for start in range(0, content.size, _PIECE):
        pieces.append(content[start : start + _PIECE].tobytes())
        loop_budget.let_others_run()
    head = message.SerializeToString(deterministic=True)
    return b"".join([head, _CONTENT_TAG, put_varint(content.size), *pieces])


@kernel("ParseTensor", cost=string_cost(2000.0))
def parse_tensor(c: OpKernelConstruction) -> Compute:
    """The tensor that a string holds."""
    dtype = c.attr("out_type")

    def compute(serialized: Any) -> Any:
        if serialized.ndim:
            raise errors.InvalidArgumentError(
                f"Expected `serialized` to be a scalar, got shape: {shape_text(serialized.shape)}"
            )
        data = serialized.item()
        try:
            message = wire_format.parse_in_pieces(proto.TensorProto, data)
        except Exception as e:  # protobuf's DecodeError differs between its implementations
            text = base64.b64encode(data).decode()
            raise errors.InvalidArgumentError(f"Could not parse `serialized` as TensorProto, base64: {text}") from e
        tensor = tensor_codec.from_proto(message)
        if message.dtype != dtype.enum:
            raise errors.InvalidArgumentError(
                f"Type mismatch between parsed tensor ({dtypes.as_dtype(message.dtype)}) and dtype ({dtype})"
            )
        return tensor

    return compute
