"""`TensorSlice`: a rectangular part of a tensor, in checkpoints and in the arguments of ops that write them.

A partitioned variable is saved part by part, each as a slice of the whole.  The text form in ops also has the shape of
the whole: `4 3 0,2:-` is the first two rows of a [4, 3] tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from aexec import proto
from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import shape_text

__all__ = ["TensorSlice", "parse_shape_and_slice"]


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A box: (start, length) per dimension; length -1 is the whole dimension, with start 0."""

    extents: tuple[tuple[int, int], ...]

    @classmethod
    def full(cls, rank: int) -> TensorSlice:
        """The slice that is a whole tensor."""
        return cls(((0, -1),) * rank)

    @classmethod
    def parse(cls, text: str) -> TensorSlice:
        """Parse `start,length:-:…`; "" is the slice of a scalar.  Raises InvalidArgumentError."""
        extents = []
        for part in text.split(":") if text else ():
            if part == "-":
                extents.append((0, -1))
                continue
            numbers = part.split(",")
            if len(numbers) != 2 or not all(_is_number(n) for n in numbers):
                raise errors.InvalidArgumentError(
                    f"Expected a pair of numbers or '-' but got '{part}': string = {text}"
                )
            start, length = int(numbers[0]), int(numbers[1])
            if start < 0 or length <= 0:
                raise errors.InvalidArgumentError(
                    f"Expected non-negative start and positive length but got start = {start}, "
                    f"length = {length}: string = {text}"
                )
            extents.append((start, length))
        return cls(tuple(extents))

    @classmethod
    def from_proto(cls, message: proto.TensorSliceProto) -> TensorSlice:
        """From a message.  Raises DataLossError if an extent is negative."""
        extents = tuple((e.start, e.length if e.HasField("length") else -1) for e in message.extent)
        if any(start < 0 or length < -1 or (length == -1 and start) for start, length in extents):
            raise errors.DataLossError(f"impossible extents of a slice: {extents}")
        return cls(extents)

    def to_proto(self) -> proto.TensorSliceProto:
        message = proto.TensorSliceProto()
        for start, length in self.extents:
            extent = message.extent.add()
            if length >= 0:
                extent.start = start
                extent.length = length
        return message

    def within(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """The slice as NumPy's index into a tensor of this shape.

        Raises:
            InvalidArgumentError: the ranks differ.
            InternalError: the slice reaches beyond the shape.
        """
        if len(shape) != len(self.extents):
            raise errors.InvalidArgumentError(f"slice {self} has {len(self.extents)} dimensions, not {len(shape)}")
        boxes = []
        for (start, length), size in zip(self.extents, shape, strict=True):
            if length < 0:
                boxes.append(slice(0, size))
                continue
            if start + length > size:
                raise errors.InternalError(
                    f"Extent in dimension {len(boxes)} out of bounds: shape = {shape_text(shape)}, slice = {self}"
                )
            boxes.append(slice(start, start + length))
        return tuple(boxes)

    def shape(self, whole: Sequence[int]) -> tuple[int, ...]:
        """Shape of the box within a tensor of shape `whole`.  Raises as `within` does."""
        return tuple(box.stop - box.start for box in self.within(whole))

    def __str__(self) -> str:
        return ":".join("-" if length < 0 else f"{start},{length}" for start, length in self.extents)


def _is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20


def parse_shape_and_slice(spec: str) -> tuple[tuple[int, ...], TensorSlice]:
    """Parse `dim dim … slice`; return (shape of the whole, slice).

    Raises:
        InvalidArgumentError: the text does not have that form.
        InternalError: the slice lies outside the shape (TensorFlow's code for it).
    """
    *dims, last = spec.split(" ")
    if not dims:
        raise errors.InvalidArgumentError(f"Need least two elements in shape_and_slice specification: {spec}")
    if not all(_is_number(d) and int(d) >= 0 for d in dims):
        raise errors.InvalidArgumentError(f"Non numerical dimension in shape_and_slice: {spec}")
    shape = tuple(int(d) for d in dims)
    box = TensorSlice.parse(last)
    box.within(shape)
    return shape, box
