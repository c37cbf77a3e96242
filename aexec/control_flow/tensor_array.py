"""`TensorArray`: tensors by index, written and read inside loops.

Each element is written once.  A method that changes the array returns a new `TensorArray`, which must be used from then
on: it is the same array, after the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.control_flow.structure import Composite
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["TensorArray"]


class _Elements:
    """The known shape of the elements while the graph is built; shared by an array and all arrays derived from it."""

    def __init__(self, shape: PartialTensorShape, *, are_alike: bool) -> None:
        self.shape = shape
        self.are_alike = are_alike
        self._seen = shape.rank is not None

    def note(self, shape: PartialTensorShape) -> None:
        """Record the shape of a written element.  Raises InvalidArgumentError if it differs from the others."""
        if not self.are_alike:
            return
        if not shape.is_compatible_with(self.shape):
            raise errors.InvalidValueError(
                f"Inconsistent shapes: saw {shape} but expected {self.shape} (and infer_shape=True)"
            )
        self.shape = self.shape.merge_with(shape) if self._seen else shape
        self._seen = True


class TensorArray(Composite):
    """An array of tensors.

    Args:
        dtype: of the elements.
        size: number of elements, an int scalar.
        dynamic_size: writing past the end makes it larger.
        clear_after_read: an element can be read once; its memory is freed then.
        tensor_array_name: of the resource; for errors.
        infer_shape: all elements have one shape, which is inferred while the graph is built.
        element_shape: that shape, as far as it is known.

    Attributes:
        handle: the array.
        flow: orders the changes; a float scalar.
        dtype: as given.
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = 0,
        *,
        dynamic_size: bool = False,
        clear_after_read: bool = True,
        tensor_array_name: str = "",
        infer_shape: bool = True,
        element_shape: Any = None,
        name: str | None = None,
    ) -> None:
        self.dtype: DType = dtypes.as_dtype(dtype)
        self.dynamic_size = dynamic_size
        shape = PartialTensorShape.of(element_shape)
        self._elements = _Elements(shape, are_alike=infer_shape)
        with name_scope(name or "TensorArray") as scope:
            self.handle, self.flow = ops.tensor_array_v3(
                convert_to_tensor(size, dtypes.int32, "size"),
                self.dtype,
                element_shape=shape,
                dynamic_size=dynamic_size,
                clear_after_read=clear_after_read,
                identical_element_shapes=infer_shape,
                tensor_array_name=tensor_array_name,
                name=scope,
            )

    @property
    def components(self) -> Sequence[Tensor]:
        return [self.flow]

    def with_components(self, components: Sequence[Tensor]) -> TensorArray:
        return self._after(components[0])

    def _after(self, flow: Tensor) -> TensorArray:
        other = copy(self)
        other.flow = flow
        return other

    @property
    def element_shape(self) -> PartialTensorShape:
        """The shape of the elements, as far as it is known so far."""
        return self._elements.shape if self._elements.are_alike else UNKNOWN_RANK

    # Changing

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array after an element is written."""
        given = convert_to_tensor(value, self.dtype, "value")
        self._elements.note(given.static_shape)
        return self._after(ops.tensor_array_write_v3(self.handle, index, given, self.flow, name=name))

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array after the rows of `value` are written, each at its index."""
        given = convert_to_tensor(value, self.dtype, "value")
        self._elements.note(_without_first(given.static_shape))
        return self._after(ops.tensor_array_scatter_v3(self.handle, indices, given, self.flow, name=name))

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """The array after all rows of `value` are written."""
        with name_scope(name or "TensorArrayUnstack"):
            given = convert_to_tensor(value, self.dtype, "value")
            return self.scatter(ops.range(0, ops.shape(given)[0], 1), given)

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """The array after the rows of `value` are written as elements of the given lengths: [lengths[i], …]."""
        given = convert_to_tensor(value, self.dtype, "value")
        sizes = lengths if isinstance(lengths, Tensor) else convert_to_tensor(lengths, dtypes.int64, "lengths")
        if sizes.dtype.base is not dtypes.int64:
            sizes = ops.cast(sizes, DstT=dtypes.int64)
        self._elements.note(_with_first(None, _without_first(given.static_shape)))
        return self._after(ops.tensor_array_split_v3(self.handle, given, sizes, self.flow, name=name))

    def identity(self) -> TensorArray:
        """The array as it is at this point."""
        return self._after(ops.identity(self.flow))

    def close(self, name: str | None = None) -> Node:
        """An operation that frees its memory."""
        return ops.tensor_array_close_v3(self.handle, name=name)

    # Reading

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """An element."""
        made = ops.tensor_array_read_v3(self.handle, index, self.flow, self.dtype, name=name)
        return _known(made, self.element_shape)

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """Some elements as the rows of a tensor."""
        shape = self.element_shape
        made = ops.tensor_array_gather_v3(self.handle, indices, self.flow, self.dtype, element_shape=shape, name=name)
        return _known(made, _with_first(None, shape))

    def stack(self, name: str | None = None) -> Tensor:
        """All elements as the rows of a tensor."""
        with name_scope(name or "TensorArrayStack"):
            return self.gather(ops.range(0, self.size(), 1))

    def concat(self, name: str | None = None) -> Tensor:
        """All elements joined along their first axis, the only one in which they may differ."""
        rest = _without_first(self.element_shape)
        value, _ = ops.tensor_array_concat_v3(self.handle, self.flow, self.dtype, element_shape_except0=rest, name=name)
        return _known(value, _with_first(None, rest))

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements; an int32 scalar."""
        return ops.tensor_array_size_v3(self.handle, self.flow, name=name)

    def __repr__(self) -> str:
        return f"<TensorArray '{self.handle.node.name}' of {self.dtype} {self.element_shape}>"


def _known(made: Tensor, shape: PartialTensorShape) -> Tensor:
    """Set the shape of a read value to that of the elements, which inference cannot know from the handle."""
    made.node.shapes = [shape, *made.node.shapes[1:]]
    return made


def _without_first(shape: PartialTensorShape) -> PartialTensorShape:
    return UNKNOWN_RANK if shape.rank is None else PartialTensorShape(list(shape)[1:])


def _with_first(size: int | None, shape: PartialTensorShape) -> PartialTensorShape:
    return UNKNOWN_RANK if shape.rank is None else PartialTensorShape([size, *shape])
