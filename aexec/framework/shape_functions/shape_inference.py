"""`InferenceContext`: the argument of a shape function.

A shape function takes a context, reads the input shapes, attrs and, if it needs them, input *values*, and sets the
output shapes.  A value is known only if the graph fixes it, and is computed when it is asked for: `input_tensor`
returns a value, `make_shape_from_shape_tensor` the shape given by a vector, of which parts may be known.

    def unchanged_shape(c: InferenceContext) -> None:
        c.set_output(0, c.input(0))

Error texts are those of TensorFlow 2.21.  Next to read: `shape_algebra.py` (merging and arithmetic),
`common_shape_fns.py` (shape functions), `aexec/graph/shape_refiner.py` (calls them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import MAX_RANK, PartialTensorShape, check_max_rank
from aexec.framework.shape_functions.shape_algebra import ShapeAlgebra
from aexec.framework.shape_functions.shape_handles import (
    Dimension,
    DimensionOrConstant,
    Shape,
    ShapeAndType,
    ShapeManager,
    as_dimension,
)
from aexec.framework.wire.op_def import OpDef

__all__ = [
    "Array",
    "Dimension",
    "DimensionOrConstant",
    "HandleData",
    "InferenceContext",
    "Shape",
    "ShapeAndType",
    "ShapeFn",
    "ShapeManager",
    "dtype_text",
]

Array = npt.NDArray[Any]
HandleData = tuple[ShapeAndType, ...]
ShapeFn = Callable[["InferenceContext"], None]

# Elements of a value shown in an error.
_MAX_VALUES_SHOWN = 256


class InferenceContext(ShapeAlgebra):
    """One node as its shape function sees it.

    Args:
        op_def, attrs: definition and attr values of the node; defaults must be filled in.
        inputs: shape of each flattened input.
        input_tensors: value of each input, None if unknown; may be shorter than inputs.
        input_tensors_as_shapes: for inputs whose value is a shape, as much of it as is known; may be shorter.
        input_handle_data: what each input refers to; None if it is not a handle or nothing is known.
        num_outputs: number of flattened outputs, if the caller has counted and checked them.
        graph_version: producer version of the GraphDef.
        node_text: returns the node as errors print it.
        manager: makes the shapes; shared by the contexts of one graph.
        evaluate: called with an input's index when its value is asked for and not given.
        evaluate_shape: likewise for an input whose value is a shape.

    Raises:
        InvalidArgumentError: the number of inputs does not fit the definition.
    """

    __slots__ = (
        "_as_shapes",
        "_evaluate",
        "_evaluate_shape",
        "_handle_data",
        "_inputs",
        "_node_text",
        "_outputs",
        "_requested",
        "_requested_as_shape",
        "_tensors",
        "attrs",
        "graph_version",
        "op_def",
        "output_handle_data",
    )

    def __init__(
        self,
        op_def: OpDef,
        attrs: Mapping[str, Any],
        inputs: Sequence[Shape],
        *,
        input_tensors: Sequence[Array | None] = (),
        input_tensors_as_shapes: Sequence[Shape | None] = (),
        input_handle_data: Sequence[HandleData | None] = (),
        num_outputs: int | None = None,
        graph_version: int = 0,
        node_text: Callable[[], str] | None = None,
        manager: ShapeManager | None = None,
        evaluate: Callable[[int], Array | None] | None = None,
        evaluate_shape: Callable[[int], Shape | None] | None = None,
    ) -> None:
        super().__init__(manager)
        self.op_def = op_def
        self.attrs = attrs
        self._inputs = list(inputs)
        self._tensors: dict[int, Array | None] = dict(enumerate(input_tensors)) if input_tensors else {}
        self._as_shapes: dict[int, Shape | None] = (
            dict(enumerate(input_tensors_as_shapes)) if input_tensors_as_shapes else {}
        )
        self._handle_data = input_handle_data
        self.graph_version = graph_version
        self._node_text = node_text
        self._evaluate = evaluate
        self._evaluate_shape = evaluate_shape
        self._requested: set[int] = set()
        self._requested_as_shape: set[int] = set()
        if num_outputs is None:
            num_outputs = self._check_construction()
        self._outputs: list[Shape | None] = [None] * num_outputs
        self.output_handle_data: dict[int, HandleData] = {}

    def _check_construction(self) -> int:
        expected = len(self.op_def.input_types(self.attrs))
        if expected != len(self._inputs):
            raise errors.InvalidArgumentError(
                f"Wrong number of inputs passed: {len(self._inputs)} while {expected} expected based on NodeDef"
            )
        return len(self.op_def.output_types(self.attrs))

    # Running a shape function

    def run(self, shape_fn: ShapeFn) -> None:
        """Call a shape function.  An OpError from it names the node and its inputs."""
        self.forget_merges()
        try:
            shape_fn(self)
        except errors.OpError as error:
            self.forget_merges()
            error.message = self.with_context(error.message)
            error.args = (error.message,)
            raise

    def with_context(self, message: str) -> str:
        """The message, followed by the node, its input shapes and the values that were used."""
        node = self._node_text() if self._node_text else f"{{{{node }}}} = {self.op_def.name}[]()"
        text = f"{message} for '{node}' with input shapes: {', '.join(map(str, self._inputs))}"
        values, partial_shapes = [], []
        for index in range(len(self._inputs)):
            as_shape = self._as_shapes.get(index)
            value = self._tensors.get(index)
            if index in self._requested_as_shape and as_shape is not None and as_shape.dims is not None:
                partial_shapes.append(f"input[{index}] = {as_shape}")
            elif index in self._requested and value is not None:
                values.append(f"input[{index}] = <{_value_text(value)}>")
        if values:
            text += f" and with computed input tensors: {', '.join(values)}"
        if partial_shapes:
            text += f" and with input tensors computed as partial shapes: {','.join(partial_shapes)}"
        return text + "."

    # Attrs

    def attr(self, name: str) -> Any:
        """Value of an attr.  Raises InvalidArgumentError if the node has none of that name."""
        try:
            return self.attrs[name]
        except KeyError:
            raise errors.InvalidArgumentError(f"No attr named '{name}' in NodeDef") from None

    def text(self, name: str) -> str:
        """Value of a string attr.  Raises InvalidArgumentError if the node has none of that name."""
        return str(self.attr(name), "utf-8", "replace")

    # Inputs and outputs

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def input(self, index: int) -> Shape:
        """Shape of an input."""
        return self._inputs[index]

    def input_named(self, name: str) -> list[Shape]:
        """Shapes of an input argument.  Raises InvalidArgumentError if the op has none of that name."""
        start, stop = self._range(self.op_def.input_ranges(self.attrs), name, "input")
        return self._inputs[start:stop]

    def output(self, index: int) -> Shape:
        """Shape of an output; of unknown rank until it is set."""
        shape = self._outputs[index]
        if shape is None:
            shape = self._outputs[index] = self.unknown_shape()
        return shape

    def output_named(self, name: str) -> list[Shape]:
        """Shapes of an output argument.  Raises InvalidArgumentError if the op has none of that name."""
        start, stop = self._range(self.op_def.output_ranges(self.attrs), name, "output")
        return [self.output(i) for i in range(start, stop)]

    @property
    def outputs(self) -> tuple[Shape, ...]:
        """Shapes of all outputs."""
        return tuple([self.output(i) for i in range(len(self._outputs))])

    def set_output(self, index: int, shape: Shape) -> None:
        """Set the shape of an output."""
        self._outputs[index] = shape

    def set_output_named(self, name: str, shapes: Sequence[Shape]) -> None:
        """Set the shapes of an output argument.

        Raises:
            InvalidArgumentError: the op has no output of that name, or it has another number of tensors.
        """
        start, stop = self._range(self.op_def.output_ranges(self.attrs), name, "output")
        if len(shapes) != stop - start:
            raise errors.InvalidArgumentError(f"Must have exactly {stop - start} shapes.")
        self._outputs[start:stop] = shapes

    def _range(self, ranges: Mapping[str, tuple[int, int]], name: str, what: str) -> tuple[int, int]:
        try:
            return ranges[name]
        except KeyError:
            raise errors.InvalidArgumentError(f"Unknown {what} name: {name}") from None

    # Values of inputs

    def input_tensor(self, index: int) -> Array | None:
        """The value of an input if the graph fixes it, else None.  Records that it was asked for."""
        self._requested.add(index)
        if index not in self._tensors and self._evaluate is not None:
            self._tensors[index] = self._evaluate(index)
        return self._tensors.get(index)

    def _input_as_shape(self, index: int) -> Shape | None:
        self._requested.add(index)
        self._requested_as_shape.add(index)
        if index not in self._as_shapes and self._evaluate_shape is not None:
            self._as_shapes[index] = self._evaluate_shape(index)
        return self._as_shapes.get(index)

    def requested_input_tensor(self, index: int) -> bool:
        """True if the value of an input was asked for."""
        return index in self._requested

    def requested_input_tensor_as_partial_shape(self, index: int) -> bool:
        """True if the value of an input was asked for as a shape."""
        return index in self._requested_as_shape

    def set_input_tensor(self, index: int, value: Array | None) -> None:
        """Set the value of an input (None: it cannot be known)."""
        self._tensors[index] = value

    def set_input_tensor_as_shape(self, index: int, shape: Shape | None) -> None:
        """Set the shape that is the value of an input, as much of it as is known."""
        self._as_shapes[index] = shape

    def make_shape_from_shape_tensor(self, index: int) -> Shape:
        """The shape that is the value of a vector input; as much of it as is known.

        Raises:
            InvalidArgumentError: the input is not a vector of int32 or int64, or holds a size below -1.
        """
        return self._shape_from_input(index, self.with_rank(self.input(index), 1))

    def make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(self, index: int) -> Shape:
        """Like `make_shape_from_shape_tensor`, but the input may be the scalar -1: unknown rank."""
        return self._shape_from_input(index, self.with_rank_at_most(self.input(index), 1), scalar_is_unknown=True)

    def _shape_from_input(self, index: int, input_shape: Shape, *, scalar_is_unknown: bool = False) -> Shape:
        partial = self._input_as_shape(index)
        if partial is not None and partial.dims is not None:
            return partial
        return self.make_shape_from_tensor(self.input_tensor(index), input_shape, scalar_is_unknown=scalar_is_unknown)

    def make_shape_from_tensor(
        self, value: Array | None, value_shape: Shape, *, scalar_is_unknown: bool = False
    ) -> Shape:
        """The shape that is given by a value; if the value is unknown, its length gives the rank.

        Raises:
            InvalidArgumentError: the value is not a vector of int32 or int64, or holds a size below -1.
        """
        if value is None:
            if value_shape.dims is None or (scalar_is_unknown and not value_shape.dims):
                return self.unknown_shape()
            self.with_rank(value_shape, 1)
            rank = value_shape.dims[0]
            if rank is None or rank > MAX_RANK:
                return self.unknown_shape()
            return self.unknown_shape_of_rank(rank)
        if value.dtype not in (np.int32, np.int64):
            raise errors.InvalidArgumentError(
                f"Input tensor must be int32 or int64, but was {dtypes.from_numpy(value.dtype)}"
            )
        if value.ndim == 0:
            if value != -1:
                raise errors.InvalidArgumentError(
                    "Input tensor must be rank 1, or if its rank 0 it must have value -1 "
                    f"(representing an unknown shape).  Saw value: {value}"
                )
            return self.unknown_shape()
        if value.ndim != 1:
            shown = ",".join(map(str, value.shape))
            raise errors.InvalidArgumentError(
                f"Input tensor must be rank 1, but was rank {value.ndim}. Saw tensor shape [{shown}]"
            )
        check_max_rank(value.size)
        sizes = value.tolist()
        for size in sizes:
            if size < -1:
                raise errors.InvalidArgumentError(f"Invalid value in tensor used for shape: {size}")
        return self.make_shape(sizes)

    def make_shape_from_partial_tensor_shape(self, shape: PartialTensorShape) -> Shape:
        """The inference shape of a graph's shape, such as a `shape` attr, with fresh unknown dimensions."""
        return Shape(None) if shape.dims is None else self.manager.known(shape.dims)

    def make_dim_for_scalar_input(self, index: int) -> Dimension:
        """The dimension that is the value of a scalar input.

        Raises:
            InvalidArgumentError: its value is known, but is not a scalar integer, or negative.
        """
        value = self.input_tensor(index)
        if value is None:
            return self.unknown_dim()
        size = self.scalar_from_tensor(value)
        if size < 0:
            raise errors.InvalidArgumentError(
                f"Dimension size, given by scalar input {index}, must be non-negative but is {size}"
            )
        return as_dimension(size)

    def make_dim_for_scalar_input_with_negative_indexing(self, index: int, rank: int | None) -> Dimension:
        """The index of a dimension, counted from the front, that is the value of a scalar input.

        Args:
            rank: number of dimensions; None if unknown.

        Raises:
            InvalidArgumentError: its value is known, but is not a scalar integer, or not in [-rank, rank).
        """
        value = self.input_tensor(index)
        if value is None:
            return self.unknown_dim()
        axis = self.scalar_from_tensor(value)
        if rank is None:
            return self.unknown_dim() if axis < 0 else as_dimension(axis)
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(
                f"Dimension size, given by scalar input {axis} must be in range [-{rank}, {rank})"
            )
        return as_dimension(axis % rank)

    def scalar_from_tensor(self, value: Array) -> int:
        """The integer in a scalar value.  Raises InvalidArgumentError if it is not one."""
        if value.ndim != 0:
            raise errors.InvalidArgumentError(f"Input must be scalar but has rank {value.ndim}")
        if value.dtype not in (np.int32, np.int64, np.int16, np.uint8, np.int8):
            raise errors.InvalidArgumentError("Scalar input must be int8, int16, int32, int64 or uint8.")
        return int(value)

    # Handle data: what handles refer to

    def input_handle_shapes_and_types(self, index: int) -> HandleData | None:
        """Shapes and types of the values behind a resource or variant input; None if unknown."""
        data = self._handle_data
        return data[index] if index < len(data) else None

    def output_handle_shapes_and_types(self, index: int) -> HandleData | None:
        """Shapes and types of the values behind a resource or variant output; None if not set."""
        return self.output_handle_data.get(index)

    def set_output_handle_shapes_and_types(self, index: int, data: Sequence[ShapeAndType]) -> None:
        """Set what a resource or variant output refers to."""
        self.output_handle_data[index] = tuple(data)

    def merge_handle_shapes_and_types(self, known: HandleData, other: HandleData) -> HandleData | None:
        """The merged handle data; None if lengths or types differ, or if `other` adds nothing to `known`."""
        if len(known) != len(other):
            return None
        merged = []
        for mine, theirs in zip(known, other, strict=True):
            if theirs.dtype is not mine.dtype and mine.dtype is not None:
                return None
            merged.append(ShapeAndType(self.merge(mine.shape, theirs.shape), theirs.dtype))
        if all(m.shape is k.shape and m.dtype is k.dtype for m, k in zip(merged, known, strict=True)):
            return None
        return tuple(merged)


def _value_text(value: Array) -> str:
    """The first elements, space-separated, rows in brackets; as error messages show a value."""
    if value.ndim == 0:
        return _element_text(value.item())
    more = "..." if value.size > _MAX_VALUES_SHOWN else ""
    if value.ndim == 1:
        return " ".join(map(_element_text, value[:_MAX_VALUES_SHOWN].tolist())) + more
    rows = value.reshape(-1, value.shape[-1]) if value.size else value[:0]
    shown = rows[: max(1, _MAX_VALUES_SHOWN // max(1, value.shape[-1]))]
    text = "".join("[" + " ".join(map(_element_text, row.tolist())) + "]" for row in shown)
    # Each outer dimension beyond the rows adds a pair of brackets around its part.
    return "[" * (value.ndim - 2) + text + "]" * (value.ndim - 2) + more


def _element_text(element: Any) -> str:
    if isinstance(element, bytes):
        return element.decode("utf-8", "backslashreplace")
    if isinstance(element, bool):
        return "1" if element else "0"
    return f"{element:g}" if isinstance(element, float) else str(element)


def dtype_text(dtype: DType | None) -> str:
    """The name of a type for errors; `INVALID` for None."""
    return "INVALID" if dtype is None else str(dtype)
