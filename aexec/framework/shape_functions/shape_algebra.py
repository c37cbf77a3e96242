"""Operations of shape functions on shapes: merge, check, slice, join, and count.

`ShapeAlgebra` needs no node; `shape_inference.InferenceContext` adds one.  Rules and error texts are those of
TensorFlow 2.21 (core/framework/shape_inference.cc).
"""

from __future__ import annotations

from collections.abc import Iterable

from aexec.framework import errors
from aexec.framework.shape import MAX_RANK
from aexec.framework.shape_functions.shape_handles import (
    Dimension,
    DimensionOrConstant,
    Shape,
    ShapeManager,
    as_dimension,
)

__all__ = ["ShapeAlgebra"]

_INT64_MAX = 2**63 - 1


class ShapeAlgebra:
    """Operations on shapes and dimensions, and a record of which were found to be equal.

    Attributes:
        manager: makes the shapes.
        merged_shapes, merged_dims: pairs that a merge has shown to be equal.  Cleared when something is relaxed, since
            earlier merges then prove nothing.
    """

    __slots__ = ("manager", "merged_dims", "merged_shapes")

    def __init__(self, manager: ShapeManager | None = None) -> None:
        self.manager = manager or ShapeManager()
        self.merged_shapes: list[tuple[Shape, Shape]] = []
        self.merged_dims: list[tuple[Dimension, Dimension]] = []

    def forget_merges(self) -> None:
        """Drop the known equalities of shapes and dimensions."""
        self.merged_shapes = []
        self.merged_dims = []

    # Making shapes

    def make_shape(self, dims: Iterable[DimensionOrConstant]) -> Shape:
        """A shape with these dimensions: handles, sizes, or None for a fresh unknown."""
        return self.manager.make_shape([as_dimension(d) for d in dims])

    def make_dim(self, value: DimensionOrConstant) -> Dimension:
        """A dimension of that size; -1 and None give a fresh unknown; a handle is itself."""
        return as_dimension(value)

    def unknown_dim(self) -> Dimension:
        """A new unknown dimension, equal to no other as far as is known."""
        return Dimension(None)

    def unknown_shape(self) -> Shape:
        """A shape of unknown rank."""
        return Shape(None)

    def unknown_shape_of_rank(self, rank: int) -> Shape:
        """A shape with `rank` fresh unknown dimensions; of unknown rank if no tensor can have that many."""
        return Shape((None,) * rank) if 0 <= rank <= MAX_RANK else Shape(None)

    def scalar(self) -> Shape:
        """The shape []."""
        return self.manager.known(())

    def vector(self, size: DimensionOrConstant) -> Shape:
        """The shape [size]."""
        return self.make_shape((size,))

    def matrix(self, rows: DimensionOrConstant, columns: DimensionOrConstant) -> Shape:
        """The shape [rows, columns]."""
        return self.make_shape((rows, columns))

    # Reading shapes

    def dim(self, shape: Shape, index: int) -> Dimension:
        """Dimension `index`, negative counting from the end; a fresh unknown if the rank is unknown."""
        return Dimension(None) if shape.dims is None else shape.handles[index]

    def num_elements(self, shape: Shape) -> Dimension:
        """Product of the dimensions; unknown unless all are known or one is 0."""
        if shape.dims is None:
            return Dimension(None)
        if 0 in shape.dims:
            return self.make_dim(0)
        size = self.make_dim(1)
        for dim in shape.handles:
            size = self.multiply(size, dim)
        return size

    # Checks: each returns its argument, or a refined one

    def with_rank(self, shape: Shape, rank: int) -> Shape:
        """The shape, refined to that rank.  Raises InvalidArgumentError if it has another."""
        if shape.dims is None:
            made = self.unknown_shape_of_rank(rank)
            return self.merge(shape, made)
        if len(shape.dims) == rank:
            return shape
        raise errors.InvalidArgumentError(f"Shape must be rank {rank} but is rank {len(shape.dims)}")

    def with_rank_at_least(self, shape: Shape, rank: int) -> Shape:
        """The shape.  Raises InvalidArgumentError if its rank is known and lower."""
        if shape.dims is None or len(shape.dims) >= rank:
            return shape
        raise errors.InvalidArgumentError(f"Shape must be at least rank {rank} but is rank {len(shape.dims)}")

    def with_rank_at_most(self, shape: Shape, rank: int) -> Shape:
        """The shape.  Raises InvalidArgumentError if its rank is known and higher."""
        if shape.dims is None or len(shape.dims) <= rank:
            return shape
        raise errors.InvalidArgumentError(f"Shape must be at most rank {rank} but is rank {len(shape.dims)}")

    def with_value(self, dim: Dimension, value: int) -> Dimension:
        """The dimension, refined to that size.  Raises InvalidArgumentError if it has another."""
        if dim.value == value:
            return dim
        if dim.value is None:
            return self.merge_dims(dim, self.make_dim(value))
        raise errors.InvalidArgumentError(f"Dimension must be {value} but is {dim.value}")

    # Merging: both arguments describe the same shape or dimension

    def merge_dims(self, first: Dimension, second: Dimension) -> Dimension:
        """The one of the two that is known.  Raises InvalidArgumentError if they differ."""
        if first is second:
            return first
        if second.value is None:
            self.merged_dims.append((first, second))
            return first
        if first.value is None:
            self.merged_dims.append((first, second))
            return second
        if first.value == second.value:
            return first
        raise errors.InvalidArgumentError(f"Dimensions must be equal, but are {first.value} and {second.value}")

    def merge(self, first: Shape, second: Shape) -> Shape:
        """Merge the known dimensions of both: return one of them if it has all, else a new shape.

        Raises:
            InvalidArgumentError: their ranks or a dimension differ.
        """
        if first is second:
            return first
        mine, theirs = first.dims, second.dims
        if mine is None or theirs is None:
            self.merged_shapes.append((first, second))
            return first if theirs is None else second
        if len(mine) != len(theirs):
            raise errors.InvalidArgumentError(f"Shapes must be equal rank, but are {len(mine)} and {len(theirs)}")
        if mine == theirs:
            self.merged_shapes.append((first, second))
            return first
        first_suffices = second_suffices = True
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if a is None:
                first_suffices &= b is None
            elif b is None:
                second_suffices = False
            elif a != b:
                raise errors.InvalidArgumentError(
                    f"Dimension {index} in both shapes must be equal, but are {a} and {b}. "
                    f"Shapes are {first} and {second}."
                )
        self.merged_shapes.append((first, second))
        if first_suffices or second_suffices:
            return first if first_suffices else second
        merged = self.make_shape(map(self.merge_dims, first.handles, second.handles))
        self.merged_shapes.append((first, merged))
        return merged

    def merge_prefix(self, shape: Shape, prefix: Shape) -> tuple[Shape, Shape]:
        """Merge the leading dimensions of `shape` with `prefix`; return both refined.

        Raises:
            InvalidArgumentError: the shape is shorter, or a dimension differs.
        """
        if shape.dims is None or prefix.dims is None:
            return shape, prefix
        rank = len(prefix.dims)
        self.with_rank_at_least(shape, rank)
        merged = [self.merge_dims(a, b) for a, b in zip(shape.handles, prefix.handles, strict=False)]
        return self.make_shape([*merged, *shape.handles[rank:]]), self.make_shape(merged)

    # Relaxing: the first argument was assumed, the second was found

    def relax_dims(self, old: Dimension, new: Dimension) -> Dimension:
        """The dimension that covers both: the old one if equal, the new one if unknown, else a fresh unknown."""
        if old is new:
            return old
        if new.value is None:
            self.forget_merges()
            return new
        if old.value == new.value:
            return old
        self.forget_merges()
        return Dimension(None)

    def relax(self, old: Shape, new: Shape) -> Shape:
        """The shape that covers both, as for a loop variable whose shape changes between iterations."""
        if old is new:
            return old
        if new.dims is None:
            self.forget_merges()
            return new
        if old.dims is None or len(old.dims) != len(new.dims):
            self.forget_merges()
            return self.unknown_shape()
        if all(
            a is b or (a.value is not None and a.value == b.value)
            for a, b in zip(old.handles, new.handles, strict=True)
        ):
            return old
        relaxed = self.make_shape(map(self.relax_dims, old.handles, new.handles))
        self.forget_merges()
        return relaxed

    # Taking apart and putting together

    def subshape(self, shape: Shape, start: int, end: int | None = None, stride: int = 1) -> Shape:
        """Dimensions start, start+stride, … before end (None: to the end); negative ones count from the end.

        Raises:
            InvalidArgumentError: a bound lies before the first dimension, or they are in the wrong order.
        """
        rank = None if shape.dims is None else len(shape.dims)
        if start == 0 and stride == 1 and (end is None or (rank is not None and end >= rank)):
            return shape
        if rank is None:
            return self.unknown_shape()
        first = min(start, rank)
        last = rank if end is None else min(end, rank)
        if stride < 0 and first == rank:
            first -= 1
        for name, given, bound in (("start", start, first), ("end", end, last)):
            if bound < -rank:
                raise errors.InvalidArgumentError(f"Subshape {name} out of bounds: {given}, for shape with rank {rank}")
        first += rank if first < 0 else 0
        last += rank if last < 0 else 0
        if (stride > 0 and first > last) or (stride < 0 and first < last):
            relation = "<=" if stride > 0 else ">="
            raise errors.InvalidArgumentError(
                f"Subshape must have computed start {relation} end, but is {first} and {last} "
                f"(computed from start {start} and end {end} over shape with rank {rank})"
            )
        return self.make_shape(shape.handles[first:last:stride])

    def concatenate(self, first: Shape, second: Shape) -> Shape:
        """The dimensions of one after those of the other."""
        if first.dims is None or second.dims is None:
            return self.unknown_shape()
        return self.make_shape(first.handles + second.handles)

    def replace_dim(self, shape: Shape, index: int, dim: DimensionOrConstant) -> Shape:
        """The shape with one dimension replaced.  Raises InvalidArgumentError if there is no such dimension."""
        if shape.dims is None:
            return self.unknown_shape()
        if not -len(shape.dims) <= index < len(shape.dims):
            raise errors.InvalidArgumentError(
                f"Out of range dim_index {index} for shape with {len(shape.dims)} dimensions"
            )
        dims = list(shape.handles)
        dims[index] = as_dimension(dim)
        return self.make_shape(dims)

    # Arithmetic: unknown if an operand is unknown, unless 0 or 1 decides

    def add(self, first: Dimension, second: DimensionOrConstant) -> Dimension:
        """first + second.  Raises InvalidArgumentError on overflow of 64 bits."""
        other = as_dimension(second)
        if first.value == 0:
            return other
        if other.value == 0:
            return first
        if first.value is None or other.value is None:
            return Dimension(None)
        total = first.value + other.value
        if total > _INT64_MAX:
            raise errors.InvalidArgumentError(f"Dimension size overflow from adding {first.value} and {other.value}")
        return as_dimension(total)

    def subtract(self, first: Dimension, second: DimensionOrConstant) -> Dimension:
        """first - second.  Raises InvalidArgumentError if that is negative."""
        other = as_dimension(second)
        if other.value == 0:
            return first
        if first.value is None or other.value is None:
            return Dimension(None)
        if first.value < other.value:
            raise errors.InvalidArgumentError(
                f"Negative dimension size caused by subtracting {other.value} from {first.value}"
            )
        return as_dimension(first.value - other.value)

    def multiply(self, first: Dimension, second: DimensionOrConstant) -> Dimension:
        """first * second.  Raises InvalidArgumentError on overflow of 64 bits."""
        other = as_dimension(second)
        if first.value == 0 or other.value == 1:
            return first
        if other.value == 0 or first.value == 1:
            return other
        if first.value is None or other.value is None:
            return Dimension(None)
        product = first.value * other.value
        if product > _INT64_MAX:
            raise errors.InvalidArgumentError(
                f"Negative dimension size caused by overflow when multiplying {first.value} and {other.value}"
            )
        return as_dimension(product)

    def divide(self, dividend: Dimension, divisor: DimensionOrConstant, *, evenly: bool) -> Dimension:
        """dividend / divisor, rounded down.

        Raises:
            InvalidArgumentError: the divisor is not positive, or `evenly` and there is a remainder.
        """
        by = divisor.value if isinstance(divisor, Dimension) else divisor
        if by == 1:
            return dividend
        if dividend.value is None or by is None:
            return Dimension(None)
        if by <= 0:
            raise errors.InvalidArgumentError(f"Divisor must be positive but is {by}")
        if evenly and dividend.value % by:
            raise errors.InvalidArgumentError(
                f"Dimension size must be evenly divisible by {by} but is {dividend.value}"
            )
        return as_dimension(dividend.value // by)

    def minimum(self, first: Dimension, second: DimensionOrConstant) -> Dimension:
        """The smaller one; 0 wins over unknown."""
        other = as_dimension(second)
        if first.value == 0:
            return first
        if other.value == 0:
            return other
        if first.value is None or other.value is None:
            return Dimension(None)
        return first if first.value <= other.value else other

    def maximum(self, first: Dimension, second: DimensionOrConstant) -> Dimension:
        """The larger one; unknown if either is."""
        other = as_dimension(second)
        if first.value is None or other.value is None:
            return Dimension(None)
        return first if first.value >= other.value else other
