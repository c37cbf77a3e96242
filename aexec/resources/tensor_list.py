"""`TensorList`: an immutable list of tensors, carried in a variant.

TensorFlow 2's loops use it instead of a TensorArray.  Every change makes a new list that shares the tensors, so a list
that was passed on never changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.memory.allocator import announce, announce_scratch
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.framework.wire.variant import VariantTensorData, register_variant
from aexec.framework.wire.wire_format import put_varint

__all__ = ["SLOT_BYTES", "TensorList"]

# Bytes of a place in a list, besides the element.
SLOT_BYTES = 8
# Places that are made at a time.
_AT_ONCE = 100_000


@register_variant
class TensorList:
    """Elements (None where not set) of one type and of compatible shapes.

    Attributes:
        dtype: type of all elements.
        element_shape: the known part of their shape.
        elements: the elements up to the last that was set; the others, up to the list's length, take no memory.
        max_elements: the most elements; -1 for no limit.
    """

    __slots__ = ("_length", "dtype", "element_shape", "elements", "max_elements")

    type_name = "tensorflow::TensorList"

    def __init__(
        self,
        dtype: DType,
        element_shape: PartialTensorShape,
        elements: list[Any],
        max_elements: int = -1,
        *,
        length: int | None = None,
    ) -> None:
        """`elements` is kept, not copied; without `length` these are all."""
        self.dtype = dtype
        self.element_shape = element_shape
        self.elements = elements
        self.max_elements = max_elements
        self._length = len(elements) if length is None else length

    def __len__(self) -> int:
        return self._length

    @property
    def is_all_set(self) -> bool:
        """True if every element was set."""
        return len(self.elements) == self._length and all(element is not None for element in self.elements)

    @property
    def tensors(self) -> list[Any]:
        """The first elements, None where one is not set."""
        return self.elements

    def with_elements(self, elements: list[Any], length: int | None = None) -> TensorList:
        """A list like this one with other elements; its length is `length`, or the number of elements if that is
        more.
        """
        length = len(elements) if length is None else max(length, len(elements))
        return TensorList(self.dtype, self.element_shape, elements, self.max_elements, length=length)

    def elements_up_to(self, count: int) -> list[Any]:
        """A copy of the first `count` elements, which may be changed.  Raises ResourceExhaustedError if there is no
        room.
        """
        announce(SLOT_BYTES * count)
        if count > len(self.elements):
            announce_scratch(SLOT_BYTES * count)  # a list that grows is copied
        elements = self.elements[:count]
        while (missing := count - len(elements)) > 0:
            elements.extend([None] * min(missing, _AT_ONCE))
            let_others_run()
        return elements

    def check_dtype(self, dtype: DType) -> None:
        """Raise InvalidArgumentError unless the elements are of type `dtype`."""
        if dtype is not self.dtype:
            raise errors.InvalidArgumentError(f"Invalid data types; op elements {dtype} but list elements {self.dtype}")

    def check_index(self, index: int, doing: str = "access") -> None:
        """Raise InvalidArgumentError unless `index` is that of an element."""
        if not 0 <= index < self._length:
            raise errors.InvalidArgumentError(
                f"Trying to {doing} element {index} in a list with {self._length} elements."
            )

    def takes(self, shape: tuple[int, ...]) -> bool:
        """True if an element may have this shape."""
        return shape == self.element_shape.dims or self.element_shape.is_compatible_with(shape)

    def get(self, index: int) -> Any:
        """Element `index`, None if it was never set.  Raises InvalidArgumentError if the index is out of range."""
        self.check_index(index)
        return self.elements[index] if index < len(self.elements) else None

    def shape_of(self, elements: Iterable[Any], wanted: PartialTensorShape) -> PartialTensorShape:
        """The known shape of elements; those that are set must be compatible with `wanted`.

        Raises:
            InvalidArgumentError: they, or the list's element shape, are not.
        """
        shape = wanted.merge_with(self.element_shape)
        fitting = None
        for element in elements:
            if element is not None and element.shape != fitting:
                shape = shape.merge_with(PartialTensorShape(element.shape))
                fitting = element.shape
        return shape

    def __repr__(self) -> str:
        return f"<TensorList of {self._length} {self.dtype}, element shape {self.element_shape}>"

    # Wire form: tensors: the elements that are set.  Metadata: as varints the number of unset elements and their
    # indices, # the type, and max_elements in 64 bits; then the shape as a message.

    def encode(self) -> VariantTensorData:
        """Encode it as TensorFlow writes lists to checkpoints."""
        unset = [index for index, element in enumerate(self.elements) if element is None]
        unset += range(len(self.elements), self._length)
        numbers = [len(unset), *unset, self.dtype.enum, self.max_elements % 2**64]
        metadata = b"".join(map(put_varint, numbers)) + self.element_shape.to_proto().SerializeToString()
        return VariantTensorData(
            self.type_name, metadata, [element for element in self.elements if element is not None]
        )

    @classmethod
    def decode(cls, data: VariantTensorData) -> TensorList:
        """The inverse of `encode`.  Raises ValueError or IndexError if the data is not a list."""
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
