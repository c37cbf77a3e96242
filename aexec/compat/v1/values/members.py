"""Adds TensorFlow's members to aexec's classes of dtypes and of IndexedSlices.

An import of this module adds them.  Next to read: `operations.py`, which adds the members of tensors.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.values.operations import give
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.static_values import shape_of_vector
from aexec.framework.dtypes import DType, as_dtype, complex64, complex128, float32, float64, int4, uint4
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node, Tensor

__all__: list[str] = []


# Types

_REAL = {complex64: float32, complex128: float64}
_NOT_NUMERIC = (int4, uint4)


def _is_numeric(self: DType) -> bool:
    """True for dtypes with arithmetic: all numbers except bool and 4-bit integers."""
    kind = self.base
    return kind not in _NOT_NUMERIC and (kind.is_integer or kind.is_floating or kind.is_complex or kind.is_quantized)


def _is_compatible_with(self: DType, other: Any) -> bool:
    """True if a tensor of the other type can be used where this one is wanted: it is this type, or its ref type."""
    return as_dtype(other) in (self, self.ref)


def _limits(self: DType) -> tuple[Any, Any]:
    """The least and greatest pixel value of an image of this dtype.

    Raises:
        ValueError: images cannot have this dtype.
    """
    kind = self.base
    if kind.np.kind == "b":
        return 0, True
    if kind in (float32, float64):
        return 0, 1
    if not kind.is_integer or kind in _NOT_NUMERIC:
        raise ValueError(f"{kind.name} does not have defined limits.")
    return 0, int(self.max)


give(
    DType,
    as_numpy_dtype=property(lambda self: self.np.type),
    base_dtype=property(lambda self: self.base),
    is_bool=property(lambda self: self.base.np.kind == "b"),
    is_compatible_with=_is_compatible_with,
    is_numeric=property(_is_numeric),
    is_numpy_compatible=property(lambda self: self.wire_name not in ("resource", "variant")),
    is_unsigned=property(lambda self: self.base.is_integer and not self.is_signed),
    limits=property(_limits),
    real_dtype=property(lambda self: _REAL.get(self.base, self.base)),
)


# Rows of a tensor


def _shape(self: IndexedSlices[Tensor]) -> TensorShape:
    """The static shape of the whole tensor."""
    return TensorShape(None) if self.dense_shape is None else shape_of_vector(self.dense_shape)


def _consumers(self: IndexedSlices[Tensor]) -> list[Node]:
    """The operations that use the rows as input."""
    return self.values.consumers()  # type: ignore[attr-defined, no-any-return]


give(
    IndexedSlices,
    consumers=_consumers,
    device=property(lambda self: self.values.device),
    dtype=property(lambda self: self.values.dtype),
    graph=property(lambda self: self.values.graph),
    name=property(lambda self: self.values.name),
    op=property(lambda self: self.values.op),
    shape=property(_shape),
)
