"""Shape functions of `control_flow_ops`, `functional_ops` and `sendrecv_ops`."""

from __future__ import annotations

from aexec.framework import dtypes, errors
from aexec.framework.shape_functions.shape_inference import DimensionOrConstant, InferenceContext, ShapeAndType


def switch(c: InferenceContext) -> None:
    """Each output has the shape of input 0; input 1 is a scalar."""
    c.with_rank(c.input(1), 0)
    data = c.input_handle_shapes_and_types(0)
    for index in range(c.num_outputs):
        c.set_output(index, c.input(0))
        if data is not None:
            c.set_output_handle_shapes_and_types(index, data)


def merge(c: InferenceContext) -> None:
    """The dimensions on which all inputs agree, and the index of the input that arrived."""
    shapes = [c.input(i) for i in range(c.num_inputs)]
    first = shapes[0]
    if any(s.dims is None or len(s.dims) != len(first.dims or ()) for s in shapes) or first.dims is None:
        c.set_output(0, c.unknown_shape())
    else:
        dims: list[DimensionOrConstant] = list(first.handles)
        for shape in shapes[1:]:
            sizes = shape.dims or ()
            dims = [d if size == known else None for d, size, known in zip(dims, sizes, first.dims, strict=True)]
        c.set_output(0, c.make_shape(dims))
    c.set_output(1, c.scalar())


def ref_select(c: InferenceContext) -> None:
    """The inputs' shape, if all have the same."""
    c.with_rank(c.input(0), 0)
    first = c.input(1)
    same = first.is_fully_defined and all(c.input(i).dims == first.dims for i in range(2, c.num_inputs))
    c.set_output(0, first if same else c.unknown_shape())


def enter(c: InferenceContext) -> None:
    """Known only for values that are the same in all iterations: constants, and the resources of handles."""
    data = c.input_handle_shapes_and_types(0)
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)
    c.set_output(0, c.input(0) if c.attr("is_constant") else c.unknown_shape())


def loop_cond(c: InferenceContext) -> None:
    """A scalar."""
    c.set_output(0, c.with_rank(c.input(0), 0))


# Functions


def output_shapes(c: InferenceContext) -> None:
    """For If and Case: the shapes in attr `output_shapes`, if any."""
    if not _explicit_outputs(c):
        for index in range(c.num_outputs):
            c.set_output(index, c.unknown_shape())


def while_loop(c: InferenceContext) -> None:
    """The shapes in attr `output_shapes`, otherwise those of the inputs."""
    if not _explicit_outputs(c):
        for index in range(c.num_outputs):
            c.set_output(index, c.input(index))


def _explicit_outputs(c: InferenceContext) -> bool:
    shapes = c.attrs.get("output_shapes") or ()
    if not shapes:
        return False
    if len(shapes) != c.num_outputs:
        raise errors.InvalidArgumentError(
            f"`output_shapes` must be the same length as num outputs ({len(shapes)} vs. {c.num_outputs}"
        )
    for index, shape in enumerate(shapes):
        c.set_output(index, c.make_shape_from_partial_tensor_shape(shape))
    return True


def optional_from_value(c: InferenceContext) -> None:
    """A scalar that holds tensors of the inputs' shapes and types."""
    types = c.attr("Toutput_types")
    c.set_output(0, c.scalar())
    c.set_output_handle_shapes_and_types(0, [ShapeAndType(c.input(i), types[i]) for i in range(c.num_inputs)])


def optional_get_value(c: InferenceContext) -> None:
    """The shapes in attr `output_shapes`."""
    c.with_rank(c.input(0), 0)
    shapes, types = c.attr("output_shapes"), c.attr("output_types")
    if len(shapes) != len(types):
        raise errors.InvalidArgumentError(
            f"`output_shapes` must be the same length as `output_types` ({len(shapes)} vs. {len(types)})"
        )
    _explicit_outputs(c)


def symbolic_gradient(c: InferenceContext) -> None:
    """The shape of the input; for a variable, that of its value."""
    if c.num_inputs < c.num_outputs:
        raise errors.InvalidArgumentError("len(inputs) < len(outputs)")
    types = c.attr("Tin")
    for index in range(c.num_outputs):
        shape = c.input(index)
        if types[index] is dtypes.resource:
            data = c.input_handle_shapes_and_types(index)
            shape = data[0].shape if data else c.unknown_shape()
        c.set_output(index, shape)


def argument(c: InferenceContext) -> None:
    """Unknown, except for the function's attrs about a handle."""
    shapes, types = c.attrs.get("_handle_shapes"), c.attrs.get("_handle_dtypes")
    if isinstance(shapes, list) and isinstance(types, list) and len(shapes) == len(types) and shapes:
        c.set_output_handle_shapes_and_types(
            0, [ShapeAndType(c.make_shape_from_partial_tensor_shape(s), t) for s, t in zip(shapes, types, strict=True)]
        )
    c.set_output(0, c.unknown_shape())
