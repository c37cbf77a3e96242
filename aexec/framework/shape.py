"""Static shapes: known rank or not, each dimension known or not.

Arrays have their own shape; `PartialTensorShape` is what a graph says about a tensor before it exists.  Shape inference
uses richer handles (see `shape_functions/shape_inference.py`), which are converted to this class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from aexec import proto
from aexec.framework import errors

__all__ = [
    "MAX_RANK",
    "UNKNOWN_RANK",
    "PartialTensorShape",
    "check_max_rank",
    "check_same_shape",
    "elements_asked_for",
    "shape_text",
]

MAX_RANK = 254
_MAX_ELEMENTS = 2**63 - 1


def elements_asked_for(sizes: Any) -> int:
    """The number of elements of the shape that is a tensor's value, for an estimate; at most 2**63.

    It is 0 for more sizes than a shape can have: the call refuses them at once.
    """
    return min(math.prod(sizes.ravel().tolist()), 1 << 63) if sizes.size <= MAX_RANK else 0


def check_max_rank(rank: int) -> None:
    """Raise InvalidArgumentError for more dimensions than a tensor has: computing their product could take hours."""
    if rank > MAX_RANK:
        raise errors.InvalidArgumentError(f"Too many dimensions: {rank} > {MAX_RANK}")


def shape_text(shape: Iterable[int | str | None]) -> str:
    """The shape for errors, such as `[2,3]`; `?` for an unknown size.  A shape of too many sizes is cut."""
    sizes = iter(shape)
    text = ",".join(["?" if size is None else str(size) for size in islice(sizes, MAX_RANK)])
    more = sum(1 for _ in sizes)
    return f"[{text},...({MAX_RANK + more} sizes)]" if more else f"[{text}]"


class PartialTensorShape:
    """An immutable shape of which rank and dimensions may be unknown.

    Args:
        dims: None for unknown rank, else sizes with None or -1 for an unknown one.

    Raises:
        InvalidArgumentError: a size below -1, more than 254 dimensions, or more than
            2**63 - 1 elements.
    """

    __slots__ = ("dims",)

    dims: tuple[int | None, ...] | None

    def __init__(self, dims: Iterable[int | None] | None) -> None:
        if dims is None:
            self.dims = None
            return
        cleaned = tuple(None if d is None or d == -1 else int(d) for d in dims)
        if len(cleaned) > MAX_RANK:
            raise errors.InvalidArgumentError(
                f"Shape {shape_text(cleaned)} is too large: {len(cleaned)} dimensions, at most {MAX_RANK} are allowed"
            )
        elements = 1
        for d in cleaned:
            if d is None:
                continue
            if d < 0:
                raise errors.InvalidArgumentError(f"Shape {shape_text(cleaned)} has invalid size {d}, expected >= -1")
            elements *= d
        if elements > _MAX_ELEMENTS:
            raise errors.InvalidArgumentError(f"Shape {shape_text(cleaned)} is too large (more than 2**63 - 1 entries)")
        self.dims = cleaned

    @classmethod
    def of(cls, shape: Any) -> PartialTensorShape:
        """The shape that a value means: a shape, one of another library's (its `partial`), or sizes.

        Raises:
            InvalidTypeError, InvalidValueError: it is none of these.
        """
        if isinstance(shape, PartialTensorShape):
            return shape
        if hasattr(shape, "partial"):
            return cls.of(shape.partial)
        if isinstance(shape, str | bytes):
            raise errors.InvalidTypeError(f"{shape!r} is no shape")
        sizes = [shape] if isinstance(shape, int) else shape
        try:
            return cls(None if sizes is None else [getattr(size, "value", size) for size in sizes])
        except errors.OpError as error:
            errors.as_python(error)
            raise

    @classmethod
    def from_proto(cls, message: proto.TensorShapeProto) -> PartialTensorShape:
        """Decode a TensorShapeProto.  Raises InvalidArgumentError as the constructor does."""
        return UNKNOWN_RANK if message.unknown_rank else cls([d.size for d in message.dim])

    def to_proto(self) -> proto.TensorShapeProto:
        message = proto.TensorShapeProto()
        if self.dims is None:
            message.unknown_rank = True
        else:
            for d in self.dims:
                message.dim.add(size=-1 if d is None else d)
        return message

    @property
    def rank(self) -> int | None:
        return None if self.dims is None else len(self.dims)

    @property
    def is_fully_defined(self) -> bool:
        return self.dims is not None and None not in self.dims

    @property
    def num_elements(self) -> int | None:
        """Product of the dimensions, None unless fully defined."""
        if self.dims is None:
            return None
        total = 1
        for d in self.dims:
            if d is None:
                return None
            total *= d
        return total

    def as_tuple(self) -> tuple[int, ...]:
        """The concrete shape.  Raises InvalidArgumentError unless fully defined."""
        if self.dims is None or None in self.dims:
            raise errors.InvalidArgumentError(f"Shape {self} is not fully defined")
        return tuple(d for d in self.dims if d is not None)

    def is_compatible_with(self, other: PartialTensorShape | Sequence[int]) -> bool:
        """True if both could describe one tensor."""
        theirs = other.dims if isinstance(other, PartialTensorShape) else other
        if self.dims is None or theirs is None:
            return True
        if len(self.dims) != len(theirs):
            return False
        return all(a is None or b is None or a == b for a, b in zip(self.dims, theirs, strict=True))

    def merge_with(self, other: PartialTensorShape) -> PartialTensorShape:
        """Merge the known dimensions of both shapes.  Raises InvalidArgumentError if they contradict each other."""
        if not self.is_compatible_with(other):
            what = "shapes" if self.rank == other.rank else "ranks"
            seen = f"{self} vs. {other}" if self.rank == other.rank else f"{self.rank} vs. {other.rank}"
            raise errors.InvalidArgumentError(f"PartialTensorShape: Incompatible {what} during merge: {seen}")
        if self.dims is None:
            return other
        if other.dims is None:
            return self
        return PartialTensorShape(b if a is None else a for a, b in zip(self.dims, other.dims, strict=True))

    def __iter__(self) -> Iterator[int | None]:
        if self.dims is None:
            raise errors.InvalidValueError("a shape of unknown rank has no dimensions to iterate over")
        return iter(self.dims)

    def __len__(self) -> int:
        if self.dims is None:
            raise errors.InvalidValueError("a shape of unknown rank has no length")
        return len(self.dims)

    def __getitem__(self, index: Any) -> Any:
        if self.dims is None:
            raise errors.InvalidValueError("a shape of unknown rank has no dimensions")
        return self.dims[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartialTensorShape):
            return self.dims == other.dims
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dims)

    def __str__(self) -> str:
        return "<unknown>" if self.dims is None else shape_text(self.dims)

    def __repr__(self) -> str:
        return f"PartialTensorShape({None if self.dims is None else list(self.dims)})"


UNKNOWN_RANK = PartialTensorShape(None)


def check_same_shape(node: str, op: str, *arrays: Any) -> None:
    """Raise InvalidArgumentError unless all inputs of a node have the first one's shape."""
    shape = arrays[0].shape if arrays else ()
    for position, array in enumerate(arrays):
        if array.shape != shape:
            raise errors.InvalidArgumentError(
                f"Inputs to operation {node} of type {op} must have the same size and shape.  "
                f"Input 0: {shape_text(arrays[0].shape)} != input {position}: {shape_text(array.shape)}"
            )
