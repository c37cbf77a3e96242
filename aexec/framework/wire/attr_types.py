"""Python types for attr values that have no builtin type: placeholders, functions with attrs, tensors.

`attr_value.py` re-exports them, and is the next to read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import WATCHED_CALLS, note_kept
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.long_work import expect
from aexec.framework.waiting.loop_budget import MEASURE_NS
from aexec.framework.wire import tensor_codec

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["NameAttrList", "Placeholder", "TensorAttr"]


class Placeholder(str):
    """The name of the function attr whose value replaces it when the function is instantiated."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NameAttrList:
    """A function and the attrs to instantiate it with.

    Attributes:
        name: the function's name in the graph's library.
        attrs: attr name → Python value.  Not to be modified.
    """

    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.attrs)))


# The messages of smaller tensors are kept, so that they are written as they were read; as bytes, which take less.
_KEPT_BYTES = 1024


def _is_large(message: proto.TensorProto) -> bool:
    # The shape is asked first: `ByteSize` encodes the message.
    elements = math.prod([d.size for d in message.tensor_shape.dim])
    return elements > _KEPT_BYTES or message.ByteSize() > _KEPT_BYTES


class TensorAttr:
    """A tensor as attr value: a TensorProto that is decoded once, when its array is first asked for.

    Args:
        value: a TensorProto, which is copied, or an array, which must not be modified any more.
        dtype: the element type, if the array's NumPy dtype does not tell (quantised types).
    """

    __slots__ = ("_array", "_content", "_encoded", "dtype_enum")

    def __init__(self, value: proto.TensorProto | npt.NDArray[Any], dtype: DType | None = None) -> None:
        self._array: npt.NDArray[Any] | None = None
        # The `tensor_content` of the message in `_encoded`, if that was taken out of it.
        self._content: memoryview | None = None
        # A message of its own: a part of a message would keep the whole message in memory.
        self._encoded: proto.TensorProto | bytes | None = None
        if isinstance(value, proto.TensorProto):
            if _is_large(value):
                self._encoded = tensor_codec.copied(value)
            else:
                self._encoded = value.SerializeToString()
            self.dtype_enum = int(value.dtype)
        else:
            self._array = np.asarray(value)
            self.dtype_enum = (dtype or dtypes.from_numpy(self._array.dtype)).enum

    @classmethod
    def apart(cls, message: proto.TensorProto, content: memoryview) -> TensorAttr:
        """Return the tensor of a message whose `tensor_content` was taken out of it; the content is not copied."""
        attr = cls(message)
        attr._encoded, attr._content = tensor_codec.copied(message), content
        return attr

    @property
    def dtype(self) -> DType:
        """The element type.  Raises InvalidArgumentError if the message names none."""
        return dtypes.as_dtype(self.dtype_enum)

    @property
    def num_bytes(self) -> int:
        """The bytes of memory that it takes, approximately."""
        if self._array is not None:
            return self._array.nbytes if any(self._array.strides) else self._array.itemsize
        if isinstance(self._encoded, bytes):
            return len(self._encoded)
        return self._described().ByteSize() + (0 if self._content is None else len(self._content))

    @property
    def shape(self) -> PartialTensorShape:
        """The shape, without decoding.  Raises InvalidArgumentError if it has an unknown or invalid size."""
        if self._array is not None:
            return PartialTensorShape(self._array.shape)
        sizes = [d.size for d in self._described().tensor_shape.dim]
        if min(sizes, default=0) < 0:
            text = ",".join("?" if size == -1 else str(size) for size in sizes)
            raise errors.InvalidArgumentError(f"Shape [{text}] is not fully defined")
        return PartialTensorShape(sizes)

    @property
    def num_elements(self) -> int:
        """The number of elements by the shape, without decoding; an invalid dimension counts as 0."""
        if self._array is not None:
            return self._array.size
        return math.prod(max(0, d.size) for d in self._described().tensor_shape.dim)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The tensor, read-only.

        Raises:
            InvalidArgumentError, ResourceExhaustedError: as `tensor_codec.from_proto`.
        """
        if self._array is None:
            message = self._described()
            is_large = message is self._encoded
            if is_large:
                expect(tensor_codec.decode_ns(message) + self._counting_ns())
            self._array = tensor_codec.from_proto(message, content=self._content)
            if is_large:
                note_kept(self._array)
            if self._array.nbytes > _KEPT_BYTES and any(self._array.strides):
                self._encoded = self._content = None  # from now on the array holds the data
        return self._array

    def _counting_ns(self) -> float:
        """Nanoseconds in which the watchers of the running call add up the array's bytes."""
        return MEASURE_NS * self.num_elements if WATCHED_CALLS[0] and self.dtype_enum == dtypes.string.enum else 0.0

    def to_proto(self) -> proto.TensorProto:
        """The tensor as a message: equal to the original one if it was not decoded yet.  Not to be modified."""
        message = self._described()
        if self._content is None:
            return message
        whole = tensor_codec.copied(message)
        whole.tensor_content = bytes(self._content)
        return whole

    def _described(self) -> proto.TensorProto:
        """The tensor as a message, which lacks the content if that was taken out of it."""
        if isinstance(self._encoded, bytes):
            return proto.TensorProto.FromString(self._encoded)
        if self._encoded is not None:
            return self._encoded
        return tensor_codec.to_proto(self._array, self.dtype)

    def to_proto_apart(self) -> tuple[proto.TensorProto, memoryview] | None:
        """The message without the bytes of its elements, and these bytes, without a copy.

        None if there are few bytes, all elements are equal, or they are not numbers.

        Raises:
            InvalidArgumentError, ResourceExhaustedError: as `array`.
        """
        if isinstance(self._encoded, proto.TensorProto) and not tensor_codec.has_values(self._encoded):
            _ = self.array  # decode: from now on the array has the bytes, for all later calls
        if self._encoded is not None or self._array is None or self._array.nbytes <= _KEPT_BYTES:
            return None
        return tensor_codec.to_proto_apart(self._array, self.dtype)

    def _key(self) -> tuple[Any, ...]:
        """The key for equality: the value, or the message if it cannot be decoded.

        An array of one repeated value gets a key of another form, so that its elements need not be made; it equals
        other such arrays only.
        """
        try:
            array = self.array
        except errors.OpError:
            return (self.dtype_enum, self.to_proto().SerializeToString(deterministic=True))
        if array.size > 1 and not any(array.strides):
            element = array[(0,) * array.ndim]
            return (self.dtype_enum, array.shape, element if array.dtype == object else element.tobytes(), "repeated")
        content = tuple(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()
        return (self.dtype_enum, array.shape, content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorAttr):
            return NotImplemented
        return self is other or (self.dtype_enum == other.dtype_enum and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<TensorAttr of type {self.dtype_enum}, {'not decoded' if self._array is None else self._array.shape}>"
