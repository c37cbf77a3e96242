"""Shape functions of `list_ops`.

A list is a scalar variant; the known shape and type of its elements are its handle data.
"""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import (
    HandleData,
    InferenceContext,
    Shape,
    ShapeAndType,
    dtype_text,
)


def _list_data(c: InferenceContext, complaint: str) -> HandleData | None:
    """The known shape of input 0's elements."""
    data = c.input_handle_shapes_and_types(0)
    if data is not None and len(data) > 1:
        raise errors.InvalidArgumentError(complaint)
    return data or None


def _element_shape(c: InferenceContext, *, wrong_data: str, wrong_type: str) -> tuple[Shape, HandleData | None]:
    """The shape of the elements of input 0; `wrong_type` is formatted with both types."""
    data = _list_data(c, wrong_data)
    if data is None:
        return c.unknown_shape(), None
    dtype = c.attr("element_dtype")
    if data[0].dtype is not dtype:
        raise errors.InvalidArgumentError(wrong_type.format(dtype_text(data[0].dtype), dtype_text(dtype)))
    return data[0].shape, data


_WRONG_READ = "Trying to read from list with wrong variant data."
_READ_TYPE = "Trying to read from list with wrong element dtype. List has type {0} but expected type {1}"
_EXPECTED_TYPE = "Expected list with element dtype {1} but got list with element dtype {0}"


def _set_list(c: InferenceContext, index: int, element: Shape) -> None:
    c.set_output(index, c.scalar())
    c.set_output_handle_shapes_and_types(index, [ShapeAndType(element, c.attr("element_dtype"))])


def empty_list(c: InferenceContext) -> None:
    """A list whose elements have the shape given by input 0."""
    _set_list(c, 0, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(0))


def push_back(c: InferenceContext) -> None:
    """The list, one longer."""
    element, _ = _element_shape(
        c,
        wrong_data="Trying to push to list with wrong variant data.",
        wrong_type="Trying to push to list with wrong element dtype. List has type {0} "
        "but trying to push element with type {1}",
    )
    _set_list(c, 0, element)


def push_back_batch(c: InferenceContext) -> None:
    """A vector of lists, each one longer."""
    handles = c.with_rank(c.input(0), 1)
    tensor = c.with_rank_at_least(c.input(1), 1)
    _, handles = c.merge_prefix(tensor, handles)
    push_back(c)
    c.set_output(0, handles)


def pop_back(c: InferenceContext) -> None:
    """The list, one shorter, and its last element."""
    element, data = _element_shape(
        c,
        wrong_data="Trying to read from list with invalid variant data.",
        wrong_type="Trying to read from list with wrong element dtype. List has type {0} "
        "but trying to push element with type {1}",
    )
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)
    c.set_output(0, c.scalar())
    c.set_output(1, element)


def stack(c: InferenceContext) -> None:
    """[elements] + element shape."""
    element, _ = _element_shape(c, wrong_data=_WRONG_READ, wrong_type=_READ_TYPE)
    element = c.merge(element, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(1))
    c.set_output(0, c.concatenate(c.vector(c.attr("num_elements")), element))


def _concat(c: InferenceContext, wanted: Shape) -> None:
    known, data = _element_shape(c, wrong_data=_WRONG_READ, wrong_type=_READ_TYPE)
    element = wanted if data is None else c.merge(wanted, known)
    if element.dims is None:
        c.set_output(0, c.unknown_shape())
    else:
        c.set_output(0, c.concatenate(c.vector(None), c.subshape(element, 1)))
    c.set_output(1, c.vector(None))


def concat(c: InferenceContext) -> None:
    """All elements joined along their first dimension, and their lengths."""
    _concat(c, c.make_shape_from_partial_tensor_shape(c.attr("element_shape")))


def concat_v2(c: InferenceContext) -> None:
    """Like `concat`; input 1 gives the shape of elements."""
    _concat(c, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(1))


def split(c: InferenceContext) -> None:
    """A list of pieces of input 0; input 1 gives their shape."""
    tensor = c.with_rank_at_least(c.input(0), 1)
    c.with_rank(c.input(2), 1)
    rows = c.concatenate(c.vector(None), c.subshape(tensor, 1))
    element = c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(1)
    c.merge(rows, element)
    _set_list(c, 0, element)


def from_tensor(c: InferenceContext) -> None:
    """A list of the rows of input 0; input 1 gives their shape."""
    row = c.subshape(c.input(0), 1)
    element = c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(1)
    c.merge(row, element)
    _set_list(c, 0, element)


def element_shape(c: InferenceContext) -> None:
    """A vector as long as the elements' rank; -1 as a scalar if they have none."""
    data = c.input_handle_shapes_and_types(0)
    rank = data[0].shape.rank if data is not None and len(data) == 1 else None
    c.set_output(0, c.unknown_shape() if rank is None else c.vector(rank))


def get_item(c: InferenceContext) -> None:
    """An element."""
    element, _ = _element_shape(c, wrong_data=_WRONG_READ, wrong_type=_EXPECTED_TYPE)
    c.set_output(0, c.merge(element, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(2)))


def resize(c: InferenceContext) -> None:
    """The list, of another length."""
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.scalar())
    data = c.input_handle_shapes_and_types(0)
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)


def set_item(c: InferenceContext) -> None:
    """The list, with another element."""
    data = _list_data(c, _WRONG_READ)
    if data is None:
        _set_list(c, 0, c.unknown_shape())
        return
    c.merge(c.input(2), data[0].shape)
    c.set_output(0, c.scalar())
    c.set_output_handle_shapes_and_types(0, data)


def gather(c: InferenceContext) -> None:
    """Elements at the indices of input 1."""
    element, _ = _element_shape(c, wrong_data=_WRONG_READ, wrong_type=_EXPECTED_TYPE)
    element = c.merge(element, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(2))
    c.set_output(0, c.concatenate(c.input(1), element))


def scatter(c: InferenceContext) -> None:
    """A list of the rows of input 0; input 2 gives the shape of elements."""
    _set_list(c, 0, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(2))


def scatter_into_existing(c: InferenceContext) -> None:
    """The list, input 0, with the rows of input 1 at the indices of input 2."""
    c.with_rank_at_least(c.input(1), 1)
    c.with_rank(c.input(2), 1)
    element, _ = _element_shape(c, wrong_data=_WRONG_READ, wrong_type=_EXPECTED_TYPE)
    _set_list(c, 0, element)


def concat_lists(c: InferenceContext) -> None:
    """The elements of two lists (or of each pair of lists)."""
    shape = c.merge(c.input(0), c.input(1))
    element, dtype = c.unknown_shape(), c.attr("element_dtype")
    for index, name in enumerate(("input_a", "input_b")):
        data = c.input_handle_shapes_and_types(index)
        if data is not None and len(data) == 1:
            if data[0].dtype is not dtype:
                raise errors.InvalidArgumentError(
                    f"{name}.type != element_dtype: {dtype_text(data[0].dtype)} vs. {dtype_text(dtype)}"
                )
            element = c.merge(element, data[0].shape)
    _set_list(c, 0, element)
    c.set_output(0, shape)
