"""`TensorList`: an immutable list of tensors, carried in a variant.

What TensorFlow 2's loops use in place of a TensorArray.  Every change makes a new list
that shares the tensors, so a list that was passed on stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape, shape_text

__all__ = ["TensorList"]


class TensorList:
    """Elements (None where not set) of one type and of compatible shapes.

    Attributes:
        dtype: type of all elements.
        element_shape: what is known of their shape.
        max_elements: -1, or the length it may not exceed.
    """

    __slots__ = ("dtype", "element_shape", "elements", "max_elements")

    def __init__(
        self, dtype: DType, element_shape: PartialTensorShape, elements: Sequence[Any], max_elements: int = -1
    ) -> None:
        self.dtype = dtype
        self.element_shape = element_shape
        self.elements = list(elements)
        self.max_elements = max_elements

    def __len__(self) -> int:
        return len(self.elements)

    def with_elements(self, elements: Sequence[Any]) -> TensorList:
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
        if not self.element_shape.is_compatible_with(np.shape(value)):
            raise errors.InvalidArgumentError(
                f"Tried to append a tensor with incompatible shape to a list. Op element shape: "
                f"{shape_text(np.shape(value))} list shape: {self.element_shape}"
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
