"""`OptionalValue`: a tuple of tensors or nothing, carried in a variant.

TensorFlow's gradients of conditionals use it: a branch that was not taken keeps nothing for the gradient.
"""

from __future__ import annotations

import struct
from typing import Any

from aexec.framework.wire.variant import VariantTensorData, register_variant

__all__ = ["OptionalValue"]


@register_variant
class OptionalValue:
    """A tuple of tensors, or no value.

    Attributes:
        components: the tensors, which may be none; None without a value.
    """

    __slots__ = ("components",)

    type_name = "tensorflow::data::Optional"

    def __init__(self, components: tuple[Any, ...] | None = None) -> None:
        self.components = components

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The components; empty without a value."""
        return self.components or ()

    def __repr__(self) -> str:
        return "<OptionalValue: none>" if self.components is None else f"<OptionalValue of {len(self.components)}>"

    # Wire form: whether there is a value, and its tensors.

    def encode(self) -> VariantTensorData:
        """Encode it as TensorFlow writes optional values to checkpoints."""
        return VariantTensorData(self.type_name, struct.pack("<?", self.components is not None), list(self.tensors))

    @classmethod
    def decode(cls, data: VariantTensorData) -> OptionalValue:
        """The inverse of `encode`.  Raises struct.error if the data is not an optional value."""
        (has_value,) = struct.unpack("<?", data.metadata)
        return cls(tuple(data.tensors) if has_value else None)
