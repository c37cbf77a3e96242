"""Shape functions of `state_ops` and `resource_variable_ops`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import unknown_shape, variable_handle_data
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape, ShapeAndType, dtype_text


def variable(c: InferenceContext) -> None:
    """Attr `shape`; in `Variable` a scalar there means unknown."""
    shape = c.attr("shape")
    if shape.rank == 0:
        unknown_shape(c)
    else:
        c.set_output(0, c.make_shape_from_partial_tensor_shape(shape))


def assign(c: InferenceContext) -> None:
    """The value's shape; it must be the variable's unless attr `validate_shape` is false."""
    if c.attr("validate_shape"):
        c.set_output(0, c.merge(c.input(0), c.input(1)))
    else:
        c.set_output(0, c.input(1))


def merged_inputs(c: InferenceContext) -> None:
    """Variable and value have one shape."""
    c.set_output(0, c.merge(c.input(0), c.input(1)))


def count_up_to(c: InferenceContext) -> None:
    """A scalar."""
    c.set_output(0, c.with_rank(c.input(0), 0))


def _check_scattered_rows(c: InferenceContext, target: Shape) -> None:
    """Updates, input 2, are rows of `target` at the indices of input 1, or one scalar for all."""
    wanted = c.concatenate(c.input(1), c.subshape(target, 1))
    if c.input(2).dims != ():
        c.merge(c.input(2), wanted)


def scatter(c: InferenceContext) -> None:
    """The variable; rows of it are updated."""
    _check_scattered_rows(c, c.input(0))
    c.set_output(0, c.input(0))


# Resource variables


def var_handle(c: InferenceContext) -> None:
    """A handle that knows the variable's type and shape."""
    c.set_output(0, c.scalar())
    shape = c.make_shape_from_partial_tensor_shape(c.attr("shape"))
    c.set_output_handle_shapes_and_types(0, [ShapeAndType(shape, c.attr("dtype"))])


def var_handles(c: InferenceContext) -> None:
    """Like `var_handle`, several at once."""
    shapes, types = c.attr("shapes"), c.attr("dtypes")
    if not len(shapes) == len(types) == c.attr("N"):
        raise errors.InvalidArgumentError(
            f"Expected {c.attr('N')} types and shapes of variables, got {len(types)} and {len(shapes)}"
        )
    for index, (shape, dtype) in enumerate(zip(shapes, types, strict=True)):
        c.set_output(index, c.scalar())
        c.set_output_handle_shapes_and_types(
            index, [ShapeAndType(c.make_shape_from_partial_tensor_shape(shape), dtype)]
        )


def read_variable(c: InferenceContext) -> None:
    """The variable's shape; for a variant, also that of its value."""
    data = variable_handle_data(c)
    shape = data[0].shape
    said = c.attrs.get("_shape")
    if said is not None:
        shape = c.merge(shape, c.make_shape_from_partial_tensor_shape(said))
    c.set_output(0, shape)
    if len(data) > 1:
        c.set_output_handle_shapes_and_types(0, data[1:])


def read_variables(c: InferenceContext) -> None:
    """Like `read_variable`, several at once."""
    for index, dtype in enumerate(c.attr("dtypes")):
        data = c.input_handle_shapes_and_types(index)
        if not data:
            c.set_output(index, c.unknown_shape())
            continue
        if data[0].dtype is not dtype:
            raise errors.InvalidArgumentError(
                "Trying to read variable with wrong dtype. "
                f"Expected {dtype_text(data[0].dtype)} got {dtype_text(dtype)}"
            )
        c.set_output(index, data[0].shape)


def assign_variable(c: InferenceContext) -> None:
    """The value, input 1, must fit the variable."""
    c.merge(variable_handle_data(c)[0].shape, c.input(1))


def variable_shape(c: InferenceContext) -> None:
    """A vector as long as the variable's rank."""
    data = c.input_handle_shapes_and_types(0)
    c.set_output(0, c.vector(data[0].shape.rank if data else None))


def resource_gather(c: InferenceContext) -> None:
    """Rows of the variable at the indices of input 1; attr `batch_dims`."""
    data = variable_handle_data(c)
    params, indices, batch_dims = data[0].shape, c.input(1), c.attr("batch_dims")
    if batch_dims < 0:
        raise errors.InvalidArgumentError(f"batch_dims is negative ({batch_dims})")
    c.with_rank_at_least(params, batch_dims + 1)
    c.with_rank_at_least(indices, batch_dims)
    out = c.concatenate(c.subshape(params, 0, batch_dims), c.subshape(indices, batch_dims))
    c.set_output(0, c.concatenate(out, c.subshape(params, batch_dims + 1)))
    if len(data) > 1:
        c.set_output_handle_shapes_and_types(0, data[1:])


def resource_scatter(c: InferenceContext) -> None:
    """Rows of the variable are updated."""
    _check_scattered_rows(c, variable_handle_data(c)[0].shape)


def resource_count_up_to(c: InferenceContext) -> None:
    """A scalar, as the variable."""
    data = c.input_handle_shapes_and_types(0)
    if not data:
        raise errors.InvalidArgumentError("Handle has no shape/type information.")
    dtype = c.attr("T")
    if data[0].dtype is not dtype:
        raise errors.InvalidArgumentError(
            f"Data types do not match: {dtype_text(dtype)} and {dtype_text(data[0].dtype)}"
        )
    c.set_output(0, c.with_rank(data[0].shape, 0))
