"""`TensorArray`: a write-once array of tensors that lives as long as its step.

Loops use it for their inputs and outputs, and gradients for the values that the backward loop needs.  Semantics and
errors are those of core/kernels/tensor_array.h.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import announce
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, giving_way, let_others_run
from aexec.framework.zeros import zeros_of_type

__all__ = ["TensorArray"]


# Per place of an array, besides the element: bytes, and nanoseconds to make it.
_SLOT_BYTES, _SLOT_NS = 8, 8.0
# Places that are made at a time; and the number of places that are made at once in any longer array.
_AT_ONCE, _FEW = 100_000, 1000


class _Cleared:
    """Marks an element that was read and may not be read again."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class TensorArray:
    """A growable or fixed array whose elements are each written once.

    Elements after the last one that was read or written are only counted, and take no memory.

    Attributes:
        name: for errors.
        dtype: type of all elements.
        element_shape: the known part of their shape; with `identical_element_shapes` the first write fixes it.
        dynamic_size: writing past the end makes it grow.
        clear_after_read: an element can be read once.
        accumulates: True for a gradient array: writing an element again adds to it, and an unwritten one reads as
            zeros.
        zeros: shapes with which unwritten elements are read, None for an unknown one; in a gradient array those of the
            forward array's elements.
        marked_size: the number of elements when a tensor was split into them; in a gradient array, how many of its
            elements make the gradient of that tensor.
        xp: array module of the elements.  Elements in a device's memory are read and written only in its stream's
            order.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        size: int,
        element_shape: PartialTensorShape,
        *,
        dynamic_size: bool = False,
        clear_after_read: bool = True,
        identical_element_shapes: bool = False,
        accumulates: bool = False,
        zeros: Sequence[tuple[int, ...] | None] = (),
        xp: Any = np,
    ) -> None:
        if size < 0:
            raise errors.InvalidArgumentError(f"TensorArray {name}: Size should be >= 0. Got {size}")
        self.name = name
        self.dtype = dtype
        self.element_shape = element_shape
        self.dynamic_size = dynamic_size
        self.clear_after_read = clear_after_read
        self.identical_element_shapes = identical_element_shapes
        self.accumulates = accumulates
        self.zeros = zeros
        self.xp = xp
        self.aggregated = False
        self.marked_size: int | None = None
        self._begin: Callable[[], None] | None = None
        # The shape that was last found to fit.  It still fits while `element_shape` is the same object; when that
        # changes, it becomes the shape of an element.
        self._fitting: tuple[int, ...] | None = None
        self._cleared = _Cleared(())  # the last mark: elements of one shape share it
        self._length = size
        self._lock = threading.Lock()
        # The elements up to some place: at least all that were read or written.
        self._elements: list[Any] | None = []

    @classmethod
    def of_gradients(cls, name: str, forward: TensorArray, prepend: Sequence[int] | None = None) -> TensorArray:
        """An array that accumulates the gradients of an array's elements; it reads the array's sizes and shapes in
        `begin`.

        Args:
            prepend: dimensions that elements have before those of the forward array's.
        """
        array = cls(name, forward.dtype, 0, forward.element_shape, accumulates=True, xp=forward.xp)

        def begin() -> None:
            if forward.aggregated:
                raise errors.InvalidArgumentError(
                    f"TensorArray {forward.name}: gradients of an array whose writes were aggregated are not defined"
                )
            forward.dynamic_size = False
            shape = forward.element_shape
            if prepend is not None and shape.dims is not None:
                shape = PartialTensorShape([*prepend, *shape.dims])
            array.element_shape, array.identical_element_shapes = shape, forward.identical_element_shapes
            array.zeros = () if prepend is not None else forward.shapes
            array.marked_size = forward.marked_size
            array._length = len(forward)

        array._begin = begin
        return array

    def begin(self) -> None:
        """Take over sizes and shapes of the forward array, if there is one and that was not done; otherwise the first
        use does.

        Raises:
            InvalidArgumentError: the forward array has no defined gradients.
        """
        if self._begin is not None:
            self._begin()
            self._begin = None

    @property
    def elements(self) -> list[Any]:
        """The first elements, None where not written; no later element was written.

        Raises:
            InvalidArgumentError: the array is closed.
        """
        if self._begin is not None or self._elements is None:
            self._check_open()
        assert self._elements is not None
        return self._elements

    def _check_open(self) -> None:
        if self._begin is not None:
            self.begin()
        if self._elements is None:
            raise errors.InvalidArgumentError(f"TensorArray {self.name} has already been closed.")

    @property
    def tensors(self) -> list[Any]:
        """The elements that it holds, with None or a mark for absent ones; empty when closed."""
        return self._elements or []

    @property
    def shapes(self) -> list[tuple[int, ...] | None]:
        """The shape of each of the first elements, read or not; None where none was written."""
        elements = self.elements
        announce(_SLOT_BYTES * len(elements))
        return [None if element is None else element.shape for element in giving_way(elements, _SLOT_NS)]

    def __len__(self) -> int:
        self._check_open()
        return self._length

    def mark_size(self) -> None:
        """Record that a tensor was split into the present elements."""
        if not self.accumulates:
            self.marked_size = len(self)

    @property
    def joined_size(self) -> int:
        """The number of elements that are joined when all are: in a gradient array those of the split tensor, even if
        it has more.
        """
        count = len(self)
        return count if self.marked_size is None or not self.accumulates else self.marked_size

    def expect(self, shape: PartialTensorShape) -> None:
        """Declare that all elements have this shape, also those that were never written.

        Raises:
            InvalidArgumentError: it contradicts the known shape.
        """
        self.element_shape = self.element_shape.merge_with(shape)
        self._fitting = None

    def close(self) -> None:
        """Drop the elements; later use is an error.  May be called twice."""
        self._elements = None

    def write(self, index: int, value: Any) -> None:
        """Set element `index`.

        Raises:
            InvalidArgumentError: the index is out of range, the element was written or read before, or its shape does
                not fit.
        """
        elements = self._elements
        if elements is None or self._begin is not None:
            elements = self.elements
        if not 0 <= index < len(elements):
            if self._append(elements, index, value):
                return
            self.make_room(index)
        if value.shape != self._fitting:
            self._check_shape(index, value.shape)
        old = elements[index]
        if old is not None:
            if type(old) is _Cleared:
                raise self._error(f"Could not write to TensorArray index {index} because it has already been read.")
            value = self._accumulated(index, old, value)
        elements[index] = value

    def _append(self, elements: list[Any], index: int, value: Any) -> bool:
        """Write a value behind all others, as a loop does; return False if that is not where it belongs, or does not
        fit.
        """
        # Memory is announced for every thousandth.
        if (
            index == len(elements) == self._length
            and self.dynamic_size
            and index % _FEW
            and value.shape == self._fitting
        ):
            with self._lock:
                if index == len(elements) == self._length:
                    elements.append(value)
                    self._length = index + 1
                    return True
        return False

    def _check_shape(self, index: int, shape: tuple[int, ...]) -> None:
        if not self.element_shape.is_compatible_with(shape):
            raise self._error(
                f"Could not write to TensorArray index {index} because the value shape is {shape_text(shape)} "
                f"which is incompatible with the TensorArray's inferred element shape: {self.element_shape} "
                "(consider setting infer_shape=False)."
            )
        if self.identical_element_shapes and not self.element_shape.is_fully_defined:
            self.element_shape = PartialTensorShape(shape)
        self._fitting = shape

    def _accumulated(self, index: int, old: Any, value: Any) -> Any:
        if not self.accumulates:
            raise self._error(f"Could not write to TensorArray index {index} because it has already been written to.")
        if old.shape != value.shape:
            raise self._error(
                f"Could not aggregate to TensorArray index {index} because the existing shape is "
                f"{shape_text(old.shape)} but the new input shape is {shape_text(value.shape)}."
            )
        self.aggregated = True
        announce(value.nbytes)
        return old + value

    def read(self, index: int) -> Any:
        """Element `index`; it is cleared if the array is read-once.

        Raises:
            InvalidArgumentError: out of range, cleared, or unwritten with an unknown shape.
        """
        elements = self._elements
        if elements is None or self._begin is not None:
            elements = self.elements
        if not 0 <= index < len(elements):
            if not 0 <= index < self._length:
                return self._zeros(self.shape_at(index))  # of a gradient array whose forward array grew later
            self.make_room(index)
        value = elements[index]
        if type(value) is _Cleared:
            raise self._error(
                f"Could not read index {index} twice because it was cleared after a previous read "
                "(perhaps try setting clear_after_read = false?)."
            )
        if value is None:
            value = self._zeros(self._unwritten_shape(index))
        if self.clear_after_read:
            cleared = self._cleared
            if cleared.shape != value.shape:
                cleared = self._cleared = _Cleared(value.shape)
            elements[index] = cleared
        return value

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        """Zeros of a shape.  Raises ResourceExhaustedError, and NeedsThreadError on an event loop if they are many."""
        num_bytes = prod(shape) * self.dtype.np.itemsize
        if self.xp is np:
            check_inline(num_bytes * COPY_NS)
            announce(num_bytes)
        return zeros_of_type(shape, self.dtype, self.xp)

    def shape_at(self, index: int) -> tuple[int, ...]:
        """The shape of the element that `read` returns.

        Raises:
            InvalidArgumentError: out of range, or unwritten with an unknown shape.
        """
        elements = self.elements
        if index < 0 or not (index < self._length or self.accumulates):
            raise self._error(f"Tried to read from index {index} but array size is: {self._length}")
        element = elements[index] if index < len(elements) else None
        return tuple(self._unwritten_shape(index) if element is None else element.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return sum(value.nbytes for value in self.elements if value is not None and type(value) is not _Cleared)

    def _unwritten_shape(self, index: int) -> tuple[int, ...]:
        known = self.zeros[index] if index < len(self.zeros) else None
        if known is None and not self.element_shape.is_fully_defined:
            raise self._error(
                f"Could not read from TensorArray index {index}.  Furthermore, the element shape is not fully "
                f"defined: {self.element_shape}.  It is possible you are working with a resizeable TensorArray and "
                "stop_gradients is not allowing the gradients to be written.  If you set the full element_shape "
                "property on the forward TensorArray, the proper all-zeros tensor will be returned instead of "
                "incurring this error."
            )
        return self.element_shape.as_tuple() if known is None else known

    def read_many(self, indices: Sequence[int]) -> list[Any]:
        """Several elements, which must have one shape."""
        values = self.read_each(indices)
        shape = values[0].shape if values else ()
        for index, value in zip(indices, values, strict=True):
            if value.shape != shape:
                raise errors.InvalidArgumentError(
                    f"TensorArray has inconsistent shapes.  Index {indices[0]} has shape: "
                    f"{shape_text(shape)} but index {index} has shape: {shape_text(value.shape)}"
                )
        return values

    def read_each(self, indices: Sequence[int]) -> list[Any]:
        """Several elements, of any shapes; unwritten ones of one shape share an array."""
        made: dict[tuple[int, ...], tuple[Any, _Cleared]] = {}
        elements, clears = self.elements, self.clear_after_read
        last = max((index for index in indices if index < self._length), default=-1)
        if clears and last >= len(elements):
            self.make_room(last)  # where each is marked
        values = []
        for index in giving_way(indices, _SLOT_NS):
            if not 0 <= index < self._length or (index < len(elements) and elements[index] is not None):
                values.append(self.read(index))
                continue
            shape = self._unwritten_shape(index)
            if shape not in made:
                made[shape] = self._zeros(shape), _Cleared(shape)
            zeros, cleared = made[shape]
            values.append(zeros)
            if clears:
                elements[index] = cleared
        return values

    def make_room(self, index: int) -> None:
        """Make the places of all elements up to `index`; the array may grow.

        Raises:
            InvalidArgumentError: there is no such element, and the array cannot grow.
            ResourceExhaustedError: there is no room.
            NeedsThreadError: on an event loop, if they are very many.
        """
        if index < 0 or not (self.dynamic_size or index < self._length):
            raise self._error(
                f"Tried to write to index {index} but array is not resizeable and size is: {self._length}"
            )
        elements = self.elements
        if index == len(elements) == self._length and index % _FEW:
            # A loop appends one element after another; memory is announced for every thousandth.
            with self._lock:
                if index == len(elements):
                    elements.append(None)
                    self._length = max(self._length, index + 1)
            return
        count = max(index + 1, min(self._length, max(_FEW, 2 * len(elements))))
        check_inline((count - len(elements)) * _SLOT_NS)
        announce(_SLOT_BYTES * max(count, index + _FEW if self.dynamic_size else 0))
        while self._add_places(elements, count):
            let_others_run()

    def _add_places(self, elements: list[Any], count: int) -> bool:
        """Make some more places, up to `count`; True if there are still too few.  May be called from any thread."""
        with self._lock:
            self._length = max(self._length, count)
            missing = count - len(elements)
            if missing > 0:
                elements.extend([None] * min(missing, _AT_ONCE))
        return missing > _AT_ONCE

    def _error(self, message: str) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError(f"TensorArray {self.name}: {message}")

    def __repr__(self) -> str:
        size = "closed" if self._elements is None else f"size {self._length}"
        return f"<TensorArray {self.name} {self.dtype} {size}>"
