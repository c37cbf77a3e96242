"""Shape functions of `lookup_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import check_old_handle, unknown_shape
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape, ShapeAndType


def _check_table(c: InferenceContext) -> None:
    c.with_rank(c.input(0), 0)


def _set_table(c: InferenceContext, key: Shape, value: Shape) -> None:
    c.set_output(0, c.scalar())
    c.set_output_handle_shapes_and_types(
        0, [ShapeAndType(key, c.attr("key_dtype")), ShapeAndType(value, c.attr("value_dtype"))]
    )


def mutable_table(c: InferenceContext) -> None:
    """A handle that knows scalar keys and values."""
    _set_table(c, c.scalar(), c.scalar())


def mutable_table_of_tensors(c: InferenceContext) -> None:
    """A handle that knows scalar keys, and values with the shape in attr `value_shape`."""
    _set_table(c, c.scalar(), c.make_shape_from_partial_tensor_shape(c.attr("value_shape")))


def mutable_dense_table(c: InferenceContext) -> None:
    """A handle that knows keys like input 0, and values with the shape in attr `value_shape`."""
    _set_table(c, c.with_rank_at_most(c.input(0), 1), c.make_shape_from_partial_tensor_shape(c.attr("value_shape")))


def old_table_find(c: InferenceContext) -> None:
    """Unknown; the default is a scalar or a vector."""
    check_old_handle(c)
    c.with_rank_at_most(c.input(2), 1)
    unknown_shape(c)


def table_find(c: InferenceContext) -> None:
    """Values for keys, input 1."""
    _check_table(c)
    data = c.input_handle_shapes_and_types(0)
    if data is None or len(data) != 2:
        unknown_shape(c)
        return
    key, value = data
    for known, attr, name in ((key, "Tin", "key"), (value, "Tout", "value")):
        if known.dtype is not c.attr(attr):
            raise errors.InvalidArgumentError(
                f"Trying to read {'value' if name == 'value' else 'key'} with wrong dtype. "
                f"Expected {known.dtype} got {c.attr(attr)}"
            )
    keys = c.input(1)
    if keys.dims is None or key.shape.dims is None:
        unknown_shape(c)
        return
    if len(keys.dims) < len(key.shape.dims):
        raise errors.InvalidArgumentError(f"Expected keys to have suffix {key.shape} but saw shape: {keys}")
    outer = len(keys.dims) - len(key.shape.dims)
    c.merge(c.subshape(keys, outer), key.shape)
    c.set_output(0, c.concatenate(c.subshape(keys, 0, outer), value.shape))


def table_export(c: InferenceContext) -> None:
    """All keys and values."""
    _check_table(c)
    unknown_shape(c)


def old_table_export(c: InferenceContext) -> None:
    """All keys and values."""
    check_old_handle(c)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.unknown_shape())


def table_in(c: InferenceContext) -> None:
    """Input 0 is a handle."""
    _check_table(c)


def table_size(c: InferenceContext) -> None:
    """A scalar."""
    _check_table(c)
    c.set_output(0, c.scalar())


def table_initialize(c: InferenceContext) -> None:
    """Keys and values are vectors of one length."""
    _check_table(c)
    keys = c.with_rank(c.input(1), 1)
    c.merge(keys, c.input(2))


def old_table_initialize(c: InferenceContext) -> None:
    """Keys and values are vectors of one length."""
    check_old_handle(c)
    keys = c.with_rank(c.input(1), 1)
    c.merge(keys, c.input(2))


def table_initialize_from_file(c: InferenceContext) -> None:
    """Handle and file name are scalars."""
    _check_table(c)
    c.with_rank(c.input(1), 0)


def old_table_initialize_from_file(c: InferenceContext) -> None:
    """File name is a scalar."""
    check_old_handle(c)
    c.with_rank(c.input(1), 0)
