"""`TensorList`: an immutable list of tensors, carried in a variant.

What TensorFlow 2's loops use in place of a TensorArray.  Every change makes a new list
that shares the tensors, so a list that was passed on stays what it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.variant import VariantTensorData, register_variant
from aexec.framework.wire_format import put_varint

__all__ = ["TensorList"]


@register_variant
class TensorList:
    """Elements (None where not set) of one type and of compatible shapes.

    Attributes:
        dtype: type of all elements.
        element_shape: what is known of their shape.
        max_elements: -1, or the length it may not exceed.
    """

    __slots__ = ("dtype", "element_shape", "elements", "max_elements")

    type_name = "tensorflow::TensorList"

    def __init__(
        self, dtype: DType, element_shape: PartialTensorShape, elements: list[Any], max_elements: int = -1
    ) -> None:
        """`elements` is kept, not copied."""
        self.dtype = dtype
        self.element_shape = element_shape
        self.elements = elements
        self.max_elements = max_elements

    def __len__(self) -> int:
        return len(self.elements)

    def with_elements(self, elements: list[Any]) -> TensorList:
        """The same kind of list with other elements."""
        return TensorList(self.dtype, self.element_shape, elements, self.max_elements)

    def check_dtype(self, dtype: DType) -> None:
        """Raises InvalidArgumentError unless the elements are of type `dtype`."""
        if dtype is not self.dtype:
            raise errors.InvalidArgumentError(f"Invalid data types; op elements {dtype} but list elements {self.dtype}")

    def check_index(self, index: int) -> None:
        """Raises InvalidArgumentError unless `index` is that of an element."""
        if not 0 <= index < len(self.elements):
            raise errors.InvalidArgumentError(
                f"Trying to access element {index} in a list with {len(self.elements)} elements."
            )

    def check_value(self, value: Any) -> None:
        """Raises InvalidArgumentError unless a value's shape may be that of an element."""
        if value.shape != self.element_shape.dims and not self.element_shape.is_compatible_with(value.shape):
            raise errors.InvalidArgumentError(
                f"Tried to append a tensor with incompatible shape to a list. Op element shape: "
                f"{shape_text(value.shape)} list shape: {self.element_shape}"
            )

    def get(self, index: int, wanted: PartialTensorShape) -> Any:
        """Element `index`; zeros if it was never set and its shape can be told.

        Raises:
            InvalidArgumentError: out of range, or an unset element of unknown shape.
        """
        self.check_index(index)
        value = self.elements[index]
        return self.zeros(wanted) if value is None else value

    def zeros(self, wanted: PartialTensorShape) -> Any:
        """What an element that was never set reads as."""
        shape = self.element_shape.merge_with(wanted)
        if not shape.is_fully_defined:
            known = next((np.shape(e) for e in self.elements if e is not None), None)
            if known is None:
                raise errors.InvalidArgumentError(
                    "Trying to read an uninitialized tensor but element_shape is not fully defined and no list "
                    f"element is set: {shape}"
                )
            shape = shape.merge_with(PartialTensorShape(known))
        if self.dtype.np.kind == "O":
            return np.full(shape.as_tuple(), b"", object)
        return np.zeros(shape.as_tuple(), self.dtype.np)

    def __repr__(self) -> str:
        return f"<TensorList of {len(self.elements)} {self.dtype}, element shape {self.element_shape}>"

    # Wire form: the elements that are set, and as varints the number and the indices of those that are
    # not, the type, and max_elements in 64 bits; then the shape as a message.

    def encode(self) -> VariantTensorData:
        """As TensorFlow writes lists to checkpoints."""
        unset = [index for index, element in enumerate(self.elements) if element is None]
        numbers = [len(unset), *unset, self.dtype.enum, self.max_elements % 2**64]
        metadata = b"".join(map(put_varint, numbers)) + self.element_shape.to_proto().SerializeToString()
        return VariantTensorData(self.type_name, metadata, [e for e in self.elements if e is not None])

    @classmethod
    def decode(cls, data: VariantTensorData) -> TensorList:
        """Undo `encode`.  Raises ValueError or IndexError for what is no list."""
        count, position = _read_varint(data.metadata, 0)
        unset = set()
        for _ in range(count):
            index, position = _read_varint(data.metadata, position)
            unset.add(index)
        dtype, position = _read_varint(data.metadata, position)
        max_elements, position = _read_varint(data.metadata, position)
        shape = PartialTensorShape.from_proto(proto.TensorShapeProto.FromString(data.metadata[position:]))
        total = count + len(data.tensors)
        if len(unset) < count or any(index >= total for index in unset):
            raise ValueError("its elements and the indices of those that are not set do not add up")
        given = iter(data.tensors)
        elements = [None if index in unset else next(given) for index in range(total)]
        if max_elements >= 2**63:
            max_elements -= 2**64
        return cls(as_dtype(dtype), shape, elements, max_elements)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a number of more than 64 bits")
