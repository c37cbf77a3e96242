"""Messages between the processes of a cluster: plain fields, and tensors as frames beside them, without pickle.

The frame of a tensor of numbers is its own memory, without a copy; strings, handles and variants are a TensorProto.  An
error is its code, its text and the node that it names.  Next to read: `engine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.late_dataclass import dataclass
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.framework.wire import tensor_codec

__all__ = ["NO_SESSION", "Message", "error_fields", "error_from"]

# Beginning of a worker's error if it does not have the session.
NO_SESSION = "There is no session"


@dataclass(slots=True, eq=False)
class Message:
    """A message, or the answer to one.

    Attributes:
        fields: text, numbers, bytes, None, and lists and dicts of these.
        frames: buffers; the fields refer to them by position.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    frames: list[Any] = field(default_factory=list)

    def put_tensor(self, value: Any, dtype: DType | None = None) -> list[Any] | None:
        """Add a tensor's frame; return the reference to it for the fields, None for a dead tensor.

        Args:
            value: an array or a scalar of NumPy's, `bytes`, or a handle; None if dead.
            dtype: the element type; by default that of the array, or of its first element.

        Raises:
            UnimplementedError: a variant that has no encoding.
        """
        if value is None:
            return None
        if not isinstance(value, np.ndarray):
            value = _as_array(value)
        if dtype is None:
            dtype = _dtype_of(value)
        frame: Any
        if dtype.size:
            frame = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data if value.size else b""
        else:
            try:
                frame = tensor_codec.to_proto(value, dtype).SerializeToString()
            except (TypeError, ValueError) as error:
                raise errors.UnimplementedError(f"A {dtype} cannot go to another task: {error}") from None
        self.frames.append(frame)
        return [dtype.enum, list(value.shape), len(self.frames) - 1]

    def tensor(self, stands_for: list[Any] | None) -> Any:
        """The tensor of a reference among the fields, read-only; None for a dead one.

        Raises:
            InvalidArgumentError: the reference is invalid.
        """
        if stands_for is None:
            return None
        enum, shape, position = stands_for
        dtype = as_dtype(enum)
        if not dtype.size:
            return tensor_codec.from_proto(proto.TensorProto.FromString(bytes(self.frames[position])))
        array = np.frombuffer(self.frames[position], dtype.np).reshape(shape)
        array.flags.writeable = False
        return array


def _as_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return np.asarray(value)
    array = np.empty((), object)
    array[()] = value
    return array


def _dtype_of(array: Any) -> DType:
    """The type of a tensor; of objects that of the first, as they are all of one type."""
    if not array.dtype.hasobject:
        return dtypes.from_numpy(array.dtype)
    first = array.flat[0] if array.size else b""
    if isinstance(first, bytes | str):
        return dtypes.string
    return dtypes.resource if isinstance(first, ResourceHandle) else dtypes.variant


def error_fields(error: errors.OpError) -> dict[str, Any]:
    """An error as fields of a message."""
    return {
        "code": int(error.code),
        "message": error.message,
        "node": error.node,
        "op": error.op_type,
        "site": error.site,
        "origin": error.origin,
        "derived": error.derived,
    }


def error_from(fields: Mapping[str, Any]) -> errors.OpError:
    """The error that `error_fields` wrote."""
    rest = dict(fields)
    return errors.error_class(errors.Code(rest.pop("code")))(rest.pop("message"), **rest)
