"""`IteratorPosition`: what a checkpoint has of an iterator."""

from __future__ import annotations

import struct

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.wire import variant

__all__ = ["IteratorPosition"]

_FORM = struct.Struct("<q")


@variant.register_variant
@dataclass(frozen=True, slots=True)
class IteratorPosition:
    """How far a pass through a dataset has come.

    The elements themselves are not saved: who restores it makes them again, in the same order.

    Attributes:
        number: of the elements that were taken, and of the errors in place of elements.
    """

    number: int

    type_name = "aexec::IteratorPosition"

    def encode(self) -> variant.VariantTensorData:
        return variant.VariantTensorData(self.type_name, _FORM.pack(self.number))

    @classmethod
    def decode(cls, data: variant.VariantTensorData) -> IteratorPosition:
        """Raises InvalidArgumentError for what is no position."""
        if len(data.metadata) != _FORM.size:
            raise errors.InvalidArgumentError("The position of an iterator has 8 bytes")
        (number,) = _FORM.unpack(data.metadata)
        if number < 0:
            raise errors.InvalidArgumentError(f"The position of an iterator is {number}")
        return cls(number)
