"""Handles of shape inference: dimensions and shapes with identity.

Two unknown dimensions may be *the same* unknown, which a list of numbers cannot express; so a dimension is an object,
compared with `is`.  A `Shape` is the graph's `PartialTensorShape` plus the identity of its dimensions, made on first
use, so that the result of inference can stay at a node without conversion.
Next to read: `shape_inference.py`, the context in which shape functions use them.
"""

from __future__ import annotations

from collections.abc import Iterable

from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import MAX_RANK, PartialTensorShape

__all__ = [
    "Dimension",
    "DimensionHandle",
    "DimensionOrConstant",
    "Shape",
    "ShapeAndType",
    "ShapeHandle",
    "ShapeManager",
    "as_dimension",
]


class Dimension:
    """One dimension: its size, or None if unknown.  The same unknown is the same object."""

    __slots__ = ("value",)

    def __init__(self, value: int | None = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "?" if self.value is None else str(self.value)


# A dimension, or a constant; -1 and None mean unknown.
DimensionOrConstant = Dimension | int | None

# Identity has no meaning for known dimensions, so small ones are shared.
_SHARED = tuple(Dimension(value) for value in range(1025))


def as_dimension(value: DimensionOrConstant) -> Dimension:
    """The dimension that `value` means; a fresh unknown one for None and -1."""
    if isinstance(value, Dimension):
        return value
    if value is None or value == -1:
        return Dimension(None)
    return _SHARED[value] if 0 <= value <= 1024 else Dimension(value)


class Shape(PartialTensorShape):
    """A shape during inference.  `is` compares identity; `==` compares the known dimensions.

    Unlike its base class it is not validated: the rules that make it keep it valid.
    """

    __slots__ = ("_handles",)

    _handles: tuple[Dimension, ...] | None

    def __init__(self, dims: tuple[int | None, ...] | None, handles: tuple[Dimension, ...] | None = None) -> None:
        self.dims = dims
        self._handles = handles

    @classmethod
    def of(cls, shape: PartialTensorShape) -> Shape:
        """The inference shape of a graph's shape; the same object if it is one."""
        return shape if isinstance(shape, Shape) else cls(shape.dims)

    @property
    def handles(self) -> tuple[Dimension, ...]:
        """The dimensions; () if the rank is unknown."""
        if self._handles is None:
            self._handles = tuple([as_dimension(d) for d in self.dims or ()])
        return self._handles

    @property
    def is_fully_defined(self) -> bool:
        return self.dims is not None and None not in self.dims

    def __str__(self) -> str:
        return "?" if self.dims is None else "[" + ",".join("?" if d is None else str(d) for d in self.dims) + "]"

    def __reduce__(self) -> tuple[object, ...]:
        return (Shape, (self.dims,))


DimensionHandle = Dimension
ShapeHandle = Shape


@dataclass(frozen=True, slots=True)
class ShapeAndType:
    """The shape and type of the value that a resource or variant handle refers to."""

    shape: Shape
    dtype: DType | None


class ShapeManager:
    """Makes the shapes of one graph's inference, and shares those that are fully known.

    It lives as long as the contexts that use it; shapes kept at nodes outlive it.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int | None, ...], Shape] = {(): Shape((), ())}

    def known(self, dims: tuple[int | None, ...]) -> Shape:
        """The shape with these sizes, shared if all are known, else a new one; as `make_shape`."""
        found = self._known.get(dims)
        if found is None:
            if len(dims) > MAX_RANK:
                return Shape(None)
            found = Shape(dims)
            if None not in dims:
                self._known[dims] = found
        return found

    def make_shape(self, dimensions: Iterable[Dimension]) -> Shape:
        """The shape with these dimensions.

        With more dimensions than a tensor can have, the shape is of unknown rank, so that they are never multiplied,
        which could take hours.
        """
        handles = tuple(dimensions)
        if len(handles) > MAX_RANK:
            return Shape(None)
        dims = tuple([d.value for d in handles])
        found = self._known.get(dims)
        return Shape(dims, handles) if found is None else found

    def unknown_shape(self) -> Shape:
        """A new shape of unknown rank."""
        return Shape(None)
