"""Tensors as serialised messages."""

from __future__ import annotations

from typing import Any

from aexec import proto
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import Growth
from aexec.framework.waiting.loop_budget import COPY_NS, DEFAULT, let_others_run
from aexec.framework.wire import tensor_codec

__all__ = ["tensor_message", "tensor_parts"]

# A tensor with at most this many elements becomes one message.
_FEW = 4096
_PIECE = DEFAULT.pieces(COPY_NS)


def tensor_message(tensor: Any, dtype: DType) -> proto.TensorProto:
    """The message of a tensor with every element, and with a shape even for scalars."""
    message = tensor_codec.to_proto(tensor, dtype, compact=False)
    message.tensor_shape.SetInParent()
    return message


def tensor_parts(tensor: Any, dtype: DType) -> list[bytes]:
    """A serialised TensorProto with every element, and with a shape even for scalars, in parts to be joined.

    The parts of a large tensor are made in pieces: copies of arrays and messages hold the interpreter's lock, joining
    bytes releases it.

    Raises:
        ResourceExhaustedError: there is no memory for the parts and for the joined message.
    """
    if tensor.size <= _FEW:
        return [tensor_message(tensor, dtype).SerializeToString(deterministic=True)]
    growth, pieces = Growth(joined=True), list[bytes]()
    for part in tensor_codec.to_parts(tensor, dtype):
        for start in range(0, len(part), _PIECE):
            piece = part[start : start + _PIECE]
            growth.add(len(piece))
            pieces.append(bytes(piece))
            let_others_run()
    return pieces
