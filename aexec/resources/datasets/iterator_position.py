"""`IteratorPosition`: the state of an iterator in a checkpoint."""

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
    """The progress of a pass through a dataset.

    Elements are not saved; restoring a position recomputes and skips them.

    Attributes:
        number: number of elements taken so far; an error in place of an element counts.
    """

    number: int

    type_name = "aexec::IteratorPosition"

    def encode(self) -> variant.VariantTensorData:
        return variant.VariantTensorData(self.type_name, _FORM.pack(self.number))

    @classmethod
    def decode(cls, data: variant.VariantTensorData) -> IteratorPosition:
        """Decode a position.  Raises InvalidArgumentError if the data is not one."""
        if len(data.metadata) != _FORM.size:
            raise errors.InvalidArgumentError("The position of an iterator has 8 bytes")
        (number,) = _FORM.unpack(data.metadata)
        if number < 0:
            raise errors.InvalidArgumentError(f"The position of an iterator is {number}")
        return cls(number)
