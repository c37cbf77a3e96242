"""`TensorShape` and `Dimension`: static shapes with TensorFlow's methods, whose sizes have a `value`.

`x.shape` and `x.get_shape()` return them in a `tf.Graph`.  A known size is an int, too.  aexec's own functions use
`PartialTensorShape`; `PartialTensorShape.of` converts.  Next to read: `tensors.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape

__all__ = [
    "Dimension",
    "TensorShape",
    "dimension_at_index",
    "dimension_value",
    "disable_v2_tensorshape",
    "enable_v2_tensorshape",
]

# TensorFlow 2's shapes have ints and None for sizes.
_bare_sizes = False


def enable_v2_tensorshape() -> None:
    """Make shapes return their sizes as ints and None."""
    global _bare_sizes
    _bare_sizes = True


def disable_v2_tensorshape() -> None:
    """Make shapes return their sizes as `Dimension`s, the default."""
    global _bare_sizes
    _bare_sizes = False


class _UnknownDimension:
    """An unknown size, and the code that known ones share: arithmetic with an unknown size is unknown."""

    @property
    def value(self) -> int | None:
        """The size, or None."""
        return None

    def is_compatible_with(self, other: Any) -> bool:
        """True if both could be the size of one tensor."""
        theirs = dimension_value(Dimension(other))
        return self.value is None or theirs is None or self.value == theirs

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError unless both could be the size of one tensor."""
        if not self.is_compatible_with(other):
            raise errors.InvalidValueError(f"Dimensions {self} and {Dimension(other)} are not compatible")

    def merge_with(self, other: Any) -> Any:
        """The size known from both.  Raises ValueError if they contradict each other."""
        self.assert_is_compatible_with(other)
        return Dimension(other) if self.value is None else self

    def __add__(self, other: Any) -> Any:
        return _computed(self, other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return _computed(other, self, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return _computed(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return _computed(other, self, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Any:
        return _computed(self, other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return _computed(other, self, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Any:
        return _computed(self, other, lambda a, b: a // b)

    def __rfloordiv__(self, other: Any) -> Any:
        return _computed(other, self, lambda a, b: a // b)

    def __mod__(self, other: Any) -> Any:
        return _computed(self, other, lambda a, b: a % b)

    def __rmod__(self, other: Any) -> Any:
        return _computed(other, self, lambda a, b: a % b)

    def __truediv__(self, other: Any) -> Any:
        raise _not_divided(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        raise _not_divided(other, self)

    # Comparisons with an unknown size are None.

    def __eq__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a == b)

    def __ne__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a != b)

    def __lt__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a >= b)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        return "?" if self.value is None else str(self.value)

    def __repr__(self) -> str:
        return f"Dimension({self.value})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Dimension, (self.value,)


class _KnownDimension(_UnknownDimension, int):
    """A known size, which is an int, too."""

    @property
    def value(self) -> int:
        """The size."""
        return int(self)


class _Sizes(type):
    """Both kinds are instances of `Dimension`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _UnknownDimension)


class Dimension(metaclass=_Sizes):
    """`tf.Dimension`: a size, or None for an unknown one."""

    def __new__(cls, value: Any) -> Any:
        """The object for a size.

        Raises:
            TypeError: it is not an integer.
            ValueError: it is negative.
        """
        if isinstance(value, _UnknownDimension):
            return value
        if value is None:
            return _UnknownDimension()
        try:
            size = value.__index__()
        except AttributeError:
            raise errors.InvalidTypeError(
                f"Dimension value must be integer or None or have an __index__ method, got value {value!r} "
                f"with type {type(value).__name__}"
            ) from None
        if size < 0:
            raise errors.InvalidValueError(f"Dimension {size} must be >= 0")
        return _KnownDimension(size)


def _not_divided(a: Any, b: Any) -> errors.OpError:
    return errors.InvalidTypeError(f"unsupported operand type(s) for /: {a!r} and {b!r}, please use // instead")


def _computed(a: Any, b: Any, compute: Callable[[int, int], int]) -> Any:
    """The size computed from two, or NotImplemented if the other operand must decide."""
    try:
        left, right = Dimension(a).value, Dimension(b).value
    except (TypeError, ValueError):
        return NotImplemented
    return Dimension(None if left is None or right is None else compute(left, right))


def _compared(a: Any, b: Any, compare: Callable[[int, int], bool]) -> Any:
    try:
        left, right = Dimension(a).value, Dimension(b).value
    except (TypeError, ValueError):
        return NotImplemented
    return None if left is None or right is None else compare(left, right)


def dimension_value(dimension: Any) -> int | None:
    """`tf.dimension_value`: the size as an int, or None."""
    size = getattr(dimension, "value", dimension)
    return None if size is None else int(size)


def dimension_at_index(shape: Any, index: int) -> Any:
    """`tf.dimension_at_index`: the `Dimension` at an index, unknown if the rank is."""
    return Dimension(dimension_value(TensorShape(shape)[index]))


def _partial(shape: Any) -> PartialTensorShape:
    """The shape that a value stands for.  Raises TypeError or ValueError if it is not a shape."""
    if shape is None:
        return UNKNOWN_RANK
    if isinstance(shape, TensorShape):
        return shape.partial
    if isinstance(shape, PartialTensorShape):
        return shape
    if hasattr(shape, "unknown_rank"):
        return PartialTensorShape.from_proto(shape)
    sizes = shape if isinstance(shape, Iterable) and not isinstance(shape, str | bytes) else (shape,)
    return PartialTensorShape([_size(size) for size in sizes])


def _size(size: Any) -> int | None:
    # -1 stands for an unknown size in messages, and in some programs.
    return None if type(size) is int and size == -1 else dimension_value(Dimension(size))


class TensorShape:
    """`tf.TensorShape`: a static shape whose rank and sizes may be unknown.

    Args:
        dims: the sizes, with None for unknown ones; None if the rank is unknown; or another shape, or message.

    Attributes:
        partial: the `PartialTensorShape` for aexec's own functions.

    Raises:
        TypeError, ValueError: the value is not a shape.
    """

    __slots__ = ("partial",)

    partial: PartialTensorShape

    def __init__(self, dims: Any) -> None:
        try:
            self.partial = _partial(dims)
        except errors.InvalidArgumentError as error:
            raise errors.as_python(error, TypeError if isinstance(error, TypeError) else ValueError) from None

    @property
    def rank(self) -> int | None:
        """The number of sizes, or None."""
        return self.partial.rank

    ndims = rank

    @property
    def dims(self) -> list[Any] | None:
        """The sizes, or None."""
        return None if self.partial.dims is None else [_shown(size) for size in self.partial.dims]

    def as_list(self) -> list[int | None]:
        """The sizes, None for unknown ones.  Raises ValueError if the rank is unknown."""
        return list(self._known("as_list() is not defined on an unknown TensorShape."))

    def as_proto(self) -> proto.TensorShapeProto:
        """The shape as a message."""
        return self.partial.to_proto()

    def num_elements(self) -> int | None:
        """The product of the sizes, None unless all are known."""
        return self.partial.num_elements

    def is_fully_defined(self) -> bool:
        """True if all sizes are known."""
        return self.partial.is_fully_defined

    def is_compatible_with(self, other: Any) -> bool:
        """True if both could be the shape of one tensor."""
        return self.partial.is_compatible_with(_partial(other))

    def is_subtype_of(self, other: Any) -> bool:
        """True if every tensor of this shape has the other shape, too."""
        theirs = _partial(other).dims
        mine = self.partial.dims
        if theirs is None or mine is None:
            return theirs is None
        return len(mine) == len(theirs) and all(b in (None, a) for a, b in zip(mine, theirs, strict=True))

    def merge_with(self, other: Any) -> TensorShape:
        """The shape known from both.  Raises ValueError if they contradict each other."""
        self.assert_is_compatible_with(other, "Shapes {} and {} are not compatible")
        return TensorShape(self.partial.merge_with(_partial(other)))

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """The most specific shape that includes both: sizes that differ become unknown."""
        mine, theirs = self.partial.dims, _partial(other).dims
        if mine is None or theirs is None or len(mine) != len(theirs):
            return TensorShape(None)
        return TensorShape([a if a == b else None for a, b in zip(mine, theirs, strict=True)])

    def concatenate(self, other: Any) -> TensorShape:
        """The sizes of both, concatenated; of unknown rank if one is."""
        mine, theirs = self.partial.dims, _partial(other).dims
        return TensorShape(None if mine is None or theirs is None else mine + theirs)

    def with_rank(self, rank: int) -> TensorShape:
        """The shape, if its rank may be this.  Raises ValueError if not."""
        if self.rank is None:
            return TensorShape([None] * rank)
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """The shape.  Raises ValueError if its rank is less."""
        if self.rank is not None and self.rank < rank:
            raise errors.InvalidValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """The shape.  Raises ValueError if its rank is more."""
        if self.rank is not None and self.rank > rank:
            raise errors.InvalidValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError unless the rank may be this."""
        if self.rank not in (None, rank):
            raise errors.InvalidValueError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: Any) -> None:
        """Raise ValueError if the ranks are known to differ."""
        theirs = TensorShape(other)
        if None not in (self.rank, theirs.rank) and self.rank != theirs.rank:
            raise errors.InvalidValueError(f"Shapes {self} and {theirs} must have the same rank")

    def assert_is_compatible_with(self, other: Any, words: str = "Shapes {} and {} are incompatible") -> None:
        """Raise ValueError unless both could be the shape of one tensor."""
        if not self.is_compatible_with(other):
            raise errors.InvalidValueError(words.format(self, TensorShape(other)))

    def assert_is_fully_defined(self) -> None:
        """Raise ValueError unless all sizes are known."""
        if not self.is_fully_defined():
            raise errors.InvalidValueError(f"Shape {self} is not fully defined")

    def _known(self, otherwise: str) -> tuple[int | None, ...]:
        if self.partial.dims is None:
            raise errors.InvalidValueError(otherwise)
        return self.partial.dims

    def __len__(self) -> int:
        return len(self._known("Cannot take the length of shape with unknown rank."))

    def __bool__(self) -> bool:
        return self.partial.dims is not None

    def __iter__(self) -> Iterator[Any]:
        return iter([_shown(size) for size in self._known("Cannot iterate over a shape with unknown rank.")])

    def __getitem__(self, index: Any) -> Any:
        if self.partial.dims is None:
            return _of_unknown(index)
        found = self.partial.dims[index]
        return TensorShape(found) if isinstance(index, slice) else _shown(found)

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        try:
            return self.partial.dims == _partial(other).dims
        except (TypeError, errors.InvalidArgumentError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.partial)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """The sizes, for ops that take a shape as a value.  Raises ValueError unless all are known."""
        if not self.is_fully_defined():
            raise errors.InvalidValueError(f"Cannot convert a partially known TensorShape {self} to a Tensor.")
        sizes = self.partial.as_tuple()
        return np.array(sizes, dtype or (np.int64 if max(sizes, default=0) >= 2**31 else np.int32))

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (None if self.partial.dims is None else list(self.partial.dims),)

    def __str__(self) -> str:
        if self.partial.dims is None:
            return "<unknown>"
        unknown = "None" if _bare_sizes else "?"
        sizes = [unknown if size is None else str(size) for size in self.partial.dims]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"

    def __repr__(self) -> str:
        return f"TensorShape({self.dims})"


def _shown(size: int | None) -> Any:
    return size if _bare_sizes else Dimension(size)


def _of_unknown(index: Any) -> Any:
    """The value of an index or slice of a shape of unknown rank."""
    if not isinstance(index, slice):
        return _shown(None)
    if index.step is not None:
        raise errors.InvalidValueError("Steps are not yet handled")
    start, stop = index.start or 0, index.stop
    return TensorShape(None if stop is None or start < 0 or stop < 0 else [None] * max(stop - start, 0))
