"""Shape functions of `data_flow_ops`, `staging_ops` and `session_ops`: queues, stacks, tensor arrays."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import check_old_handle, scalar, unknown_shape
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape, ShapeAndType, ShapeFn


def scalar_input(index: int) -> ShapeFn:
    """This input must be a scalar; outputs are unknown."""

    def shape_fn(c: InferenceContext) -> None:
        c.with_rank(c.input(index), 0)
        unknown_shape(c)

    return shape_fn


first_scalar, second_scalar = scalar_input(0), scalar_input(1)


# Queues


def _dequeue(c: InferenceContext, rows: Shape) -> None:
    data = c.input_handle_shapes_and_types(0)
    if data is None or len(data) != c.num_outputs:
        unknown_shape(c)
        return
    for index, component in enumerate(data):
        c.set_output(index, c.concatenate(rows, component.shape))


def dequeue(c: InferenceContext) -> None:
    """The components' shapes, as far as the handle knows them."""
    _dequeue(c, c.scalar())


def dequeue_many(c: InferenceContext) -> None:
    """Components with the number of rows that input 1 gives."""
    value = c.input_tensor(1)
    count = int(value.reshape(())) if value is not None and value.size == 1 else None
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(f"Input 'n' must be >= 0, but is {count}")
    _dequeue(c, c.vector(count))


def dequeue_up_to(c: InferenceContext) -> None:
    """Up to as many rows of components as the value of input 1."""
    _dequeue(c, c.vector(None))


def barrier_insert_many(c: InferenceContext) -> None:
    """Inputs handle, keys, values."""
    keys, values = c.input(1), c.input(2)
    check_old_handle(c)
    c.with_rank(keys, 1)
    values = c.with_rank_at_least(values, 1)
    c.merge(keys, c.vector(c.dim(values, 0)))


# Stacks


def stack_push(c: InferenceContext) -> None:
    """The element, input 1; input 0 is a handle."""
    c.set_output(0, c.input(1))


# Tensor arrays: handle, then flow


def tensor_array(c: InferenceContext) -> None:
    """A handle and a flow; the handle knows the elements' shape if all have the same."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.vector(2))
    c.set_output(1, c.scalar())
    shape = c.make_shape_from_partial_tensor_shape(c.attr("element_shape"))
    if shape.is_fully_defined or c.attr("identical_element_shapes"):
        c.set_output_handle_shapes_and_types(0, [ShapeAndType(shape, c.attr("dtype"))])


def tensor_array_v2(c: InferenceContext) -> None:
    """A handle of the second kind."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.vector(2))


def _array(c: InferenceContext, *scalars: int) -> Shape | None:
    """Check the handle and scalar inputs; return the elements' shape if the handle knows it."""
    check_old_handle(c)
    for index in scalars:
        c.with_rank(c.input(index), 0)
    data = c.input_handle_shapes_and_types(0)
    return data[0].shape if data else None


def tensor_array_grad(c: InferenceContext) -> None:
    """Handle and flow of the gradient's array, like that of input 0."""
    _array(c)
    c.set_output(0, c.vector(2))
    for index in range(1, c.num_outputs):
        c.set_output(index, c.scalar())
    data = c.input_handle_shapes_and_types(0)
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)


def tensor_array_grad_with_shape(c: InferenceContext) -> None:
    """Like `tensor_array_grad`; elements have the dimensions given by input 2 in front."""
    element = _array(c)
    c.set_output(0, c.vector(2))
    c.set_output(1, c.scalar())
    data = c.input_handle_shapes_and_types(0)
    if element is not None and data and c.input(2).rank in (None, 1):
        front = c.make_shape_from_shape_tensor(2)
        c.set_output_handle_shapes_and_types(0, [ShapeAndType(c.concatenate(front, element), data[0].dtype)])


def tensor_array_write(c: InferenceContext) -> None:
    """Inputs handle, index, value, flow."""
    element = _array(c, 1, 3)
    if element is not None:
        c.merge(element, c.input(2))
    scalar(c)


def tensor_array_read(c: InferenceContext) -> None:
    """Inputs handle, index, flow."""
    element = _array(c, 1, 2)
    c.set_output(0, c.unknown_shape() if element is None else element)


def tensor_array_gather(c: InferenceContext) -> None:
    """Inputs handle, indices, flow."""
    element = _array(c)
    indices = c.with_rank(c.input(1), 1)
    c.with_rank(c.input(2), 0)
    if element is None:
        element = c.make_shape_from_partial_tensor_shape(c.attr("element_shape"))
    c.set_output(0, c.concatenate(indices, element))


def tensor_array_scatter(c: InferenceContext) -> None:
    """Inputs handle, indices, values, flow."""
    element = _array(c)
    indices = c.with_rank(c.input(1), 1)
    c.with_rank(c.input(3), 0)
    values, _ = c.merge_prefix(c.input(2), indices)
    if element is not None:
        c.merge(element, c.subshape(values, 1))
    scalar(c)


def tensor_array_concat(c: InferenceContext) -> None:
    """Elements joined, and their lengths; inputs handle, flow."""
    _array(c, 1)
    c.set_output(0, c.unknown_shape())
    c.set_output(1, c.vector(None))


def tensor_array_split(c: InferenceContext) -> None:
    """Inputs handle, value, lengths, flow."""
    _array(c)
    c.with_rank(c.input(2), 1)
    c.with_rank(c.input(3), 0)
    scalar(c)


def tensor_array_size(c: InferenceContext) -> None:
    """Inputs handle, flow."""
    check_old_handle(c)
    scalar(c)
