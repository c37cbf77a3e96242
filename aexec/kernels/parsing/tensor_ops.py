"""Serialised tensors: strings that hold a TensorProto.

Next to read: `aexec/framework/wire/tensor_codec.py`.
"""

from __future__ import annotations

import base64
from typing import Any

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.framework.wire import tensor_codec, wire_format
from aexec.kernels.common.strings import string_array, string_cost
from aexec.kernels.common.tensor_bytes import tensor_parts

__all__: list[str] = []

_COST = 20.0
# The most bytes of a malformed tensor that a message shows.
_SHOWN = 300


@kernel("SerializeTensor", T=dtypes.ALL, cost=_COST)
def serialize_tensor(c: OpKernelConstruction) -> Compute:
    """Return the tensor as one string."""
    dtype = c.attr("T")

    def compute(tensor: Any) -> Any:
        return string_array([b"".join(tensor_parts(tensor, dtype))], ())

    return compute


@kernel("ParseTensor", cost=string_cost(2000.0))
def parse_tensor(c: OpKernelConstruction) -> Compute:
    """Return the tensor in a string."""
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
            text = base64.b64encode(data[:_SHOWN]).decode()
            if len(data) > _SHOWN:
                text += f"...({len(data)} bytes)"
            raise errors.InvalidArgumentError(f"Could not parse `serialized` as TensorProto, base64: {text}") from e
        tensor = tensor_codec.from_proto(message)
        if message.dtype != dtype.enum:
            raise errors.InvalidArgumentError(
                f"Type mismatch between parsed tensor ({dtypes.as_dtype(message.dtype)}) and dtype ({dtype})"
            )
        return tensor

    return compute
