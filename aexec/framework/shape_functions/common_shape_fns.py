"""Shape functions that many ops share, and the parts of which others are built.

A function named for an op's behaviour takes an `InferenceContext` and sets its outputs; one that ends in `_shape` and
takes more arguments computes a shape for others to use.  `SHAPE_RULES` holds short cuts for the most frequent of them,
which need no context. Source of the rules: core/framework/common_shape_fns.cc; the texts are TensorFlow 2.21's.
Next to read: `aexec/ops/nn/window_shapes.py`, and the modules `aexec/ops/*/*_shapes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import (
    Array,
    Dimension,
    HandleData,
    InferenceContext,
    Shape,
    ShapeAndType,
    ShapeFn,
    ShapeManager,
    dtype_text,
)

__all__ = [
    "SHAPE_RULES",
    "bias_add",
    "bias_add_grad",
    "broadcast_binary",
    "broadcast_shape",
    "check_old_handle",
    "check_scalars",
    "concat",
    "concat_shape",
    "concat_v2",
    "explicit_shape",
    "gather_nd",
    "no_outputs",
    "old_handle",
    "old_handle_and_scalar",
    "old_handle_in",
    "random_shape",
    "reduction",
    "scalar",
    "scalars_in_and_out",
    "scatter_nd_shape",
    "scatter_nd_update",
    "slice_shape",
    "unchanged_image",
    "unchanged_matrix_or_more",
    "unchanged_shape",
    "unchanged_vector",
    "unchanged_vector_or_more",
    "unchanged_volume_image",
    "unchanged_volume_or_more",
    "unknown_shape",
    "unsorted_segment_reduction",
    "validate_sparse_tensor",
    "variable_handle_data",
]

# Computes outputs from attrs and input shapes alone; None if the shape function must be called.
ShapeRule = Callable[[Mapping[str, Any], Sequence[Shape], ShapeManager], "tuple[Shape, ...] | None"]


# Shapes that do not depend on the inputs, or are those of an input


def no_outputs(c: InferenceContext) -> None:
    """For ops without outputs."""


def unknown_shape(c: InferenceContext) -> None:
    """All outputs are of unknown rank."""
    for index in range(c.num_outputs):
        c.set_output(index, c.unknown_shape())


def scalar(c: InferenceContext) -> None:
    """All outputs are scalars."""
    for index in range(c.num_outputs):
        c.set_output(index, c.scalar())


def unchanged_shape(c: InferenceContext) -> None:
    """Output 0 has the shape of input 0, and the handle data of input 0."""
    c.set_output(0, c.input(0))
    data = c.input_handle_shapes_and_types(0)
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)


def _unchanged_with_rank(rank: int, *, at_least: bool) -> ShapeFn:
    def shape_fn(c: InferenceContext) -> None:
        check = c.with_rank_at_least if at_least else c.with_rank
        c.set_output(0, check(c.input(0), rank))

    return shape_fn


# Output 0 has the shape of input 0, which must be of that rank (or more).
unchanged_vector = _unchanged_with_rank(1, at_least=False)
unchanged_vector_or_more = _unchanged_with_rank(1, at_least=True)
unchanged_matrix_or_more = _unchanged_with_rank(2, at_least=True)
unchanged_volume_or_more = _unchanged_with_rank(3, at_least=True)
unchanged_image = _unchanged_with_rank(4, at_least=False)
unchanged_volume_image = _unchanged_with_rank(5, at_least=False)


def scalars_in_and_out(c: InferenceContext) -> None:
    """All inputs must be scalars; all outputs are scalars."""
    for index in range(c.num_inputs):
        c.with_rank(c.input(index), 0)
    scalar(c)


def check_scalars(c: InferenceContext, *indices: int) -> None:
    """Raise InvalidArgumentError unless these inputs can be scalars."""
    for index in indices:
        c.with_rank(c.input(index), 0)


def check_old_handle(c: InferenceContext) -> None:
    """Raise InvalidArgumentError unless input 0 can be an old-style handle: a vector of two strings."""
    c.with_value(c.dim(c.with_rank(c.input(0), 1), 0), 2)


def old_handle(c: InferenceContext) -> None:
    """Output 0 is an old-style handle: a vector of two strings, container and name."""
    c.set_output(0, c.vector(2))


def old_handle_in(c: InferenceContext) -> None:
    """Input 0 is an old-style handle; outputs are scalars."""
    check_old_handle(c)
    scalar(c)


def old_handle_and_scalar(c: InferenceContext) -> None:
    """Inputs are an old-style handle and a scalar."""
    check_old_handle(c)
    c.with_rank(c.input(1), 0)


def explicit_shape(c: InferenceContext) -> None:
    """Output 0 has the shape of attr `shape`."""
    c.set_output(0, c.make_shape_from_partial_tensor_shape(c.attr("shape")))


def random_shape(c: InferenceContext) -> None:
    """Output 0 has the shape that is the value of input 0."""
    c.set_output(0, c.make_shape_from_shape_tensor(0))


# Elementwise


def broadcast_shape(c: InferenceContext, x: Shape, y: Shape, *, must_match: bool = True) -> Shape:
    """The shape of `x op y` after broadcasting, aligned at the last dimension.

    Args:
        must_match: raise if they cannot be broadcast.  Otherwise the result of the op is one bool: shapes that cannot
            be broadcast give a scalar, and shapes that perhaps cannot give an unknown rank.

    Raises:
        InvalidArgumentError: two known dimensions differ and neither is 1.
    """
    if x.dims is None or y.dims is None:
        return c.unknown_shape()
    rank = max(len(x.dims), len(y.dims))
    one = c.make_dim(1)
    xs = (one,) * (rank - len(x.dims)) + x.handles
    ys = (one,) * (rank - len(y.dims)) + y.handles
    dims = []
    for a, b in zip(xs, ys, strict=True):
        if a.value == 1 or b.value == 1:
            dims.append(b if a.value == 1 else a)
        elif a.value is not None and b.value is not None:
            if a.value != b.value and not must_match:
                return c.scalar()
            dims.append(c.merge_dims(a, b))
        elif a is b:
            dims.append(a)
        elif not must_match and a.value != b.value:
            return c.unknown_shape()
        else:
            # A known size above 1 wins: the other will be broadcast to it.  0 may meet 0 or 1.
            dims.append(a if (a.value or 0) > 1 else b if (b.value or 0) > 1 else c.unknown_dim())
    return c.make_shape(dims)


def broadcast_binary(c: InferenceContext) -> None:
    """Output 0 is inputs 0 and 1 broadcast; op attr `incompatible_shape_error` may allow shapes that do not fit."""
    must_match = c.attrs.get("incompatible_shape_error", True)
    c.set_output(0, broadcast_shape(c, c.input(0), c.input(1), must_match=must_match))


# Reductions and joins


def reduction(c: InferenceContext) -> None:
    """Input 0 without the dimensions that input 1 lists (or with 1 in their place: attr `keep_dims`)."""
    shape = c.input(0)
    # Graphs before version 21 could give the axes as a tensor of any rank.
    if c.graph_version >= 21:
        c.with_rank_at_most(c.input(1), 1)
    keep = c.attr("keep_dims")
    axes = c.input_tensor(1)
    if axes is None or shape.dims is None:
        known_rank = keep and shape.dims is not None
        c.set_output(0, c.unknown_shape_of_rank(len(shape.dims or ())) if known_rank else c.unknown_shape())
        return
    reduced = axes_in_range(axes, len(shape.dims))
    if keep:
        c.set_output(0, c.make_shape([1 if i in reduced else d for i, d in enumerate(shape.handles)]))
    else:
        c.set_output(0, c.make_shape([d for i, d in enumerate(shape.handles) if i not in reduced]))


def axes_in_range(axes: Array, rank: int) -> set[int]:
    """Reduction axes, counted from the front.  Raises InvalidArgumentError if one does not exist."""
    flat = axes.reshape(-1)
    outside = (flat < -rank) | (flat >= rank)
    if outside.any():
        axis = flat[outside.argmax()]
        raise errors.InvalidArgumentError(f"Invalid reduction dimension {axis} for input with {rank} dimensions.")
    return set(np.flatnonzero(np.bincount(flat % rank)).tolist()) if flat.size else set()


def concat(c: InferenceContext) -> None:
    """Inputs 1… joined along the axis that is the value of input 0."""
    concat_shape(c, range(1, c.num_inputs), 0)


def concat_v2(c: InferenceContext) -> None:
    """All inputs but the last, joined along the axis that is the value of the last."""
    concat_shape(c, range(c.num_inputs - 1), c.num_inputs - 1)


def concat_shape(c: InferenceContext, values: Sequence[int], axis_input: int) -> None:
    """Output 0 is the inputs `values` joined along the axis that is the value of input `axis_input`.

    Raises:
        InvalidArgumentError: scalars; ranks or other dimensions differ; the axis is out of range.
    """
    c.with_rank(c.input(axis_input), 0)
    shapes = [c.input(i) for i in values]
    axis_value = c.input_tensor(axis_input)
    if axis_value is None:
        ranks = [len(s.dims) for s in shapes if s.dims is not None]
        if not ranks:
            c.set_output(0, c.unknown_shape())
            return
        if ranks[0] == 0:
            raise errors.InvalidArgumentError("Can't concatenate scalars (use tf.stack instead)")
        for shape in shapes:
            c.with_rank(shape, ranks[0])
        c.set_output(0, c.unknown_shape_of_rank(ranks[0]))
        return
    axis = int(axis_value.reshape(-1)[0])
    min_rank = -axis if axis < 0 else axis + 1
    before = after = middle = None
    for shape in reversed(shapes):
        shape = c.with_rank_at_least(shape, min_rank)
        head, size = c.subshape(shape, 0, axis), c.dim(shape, axis)
        tail = c.scalar() if axis == -1 else c.subshape(shape, axis + 1)
        if before is None or after is None or middle is None:
            before, middle, after = head, size, tail
        else:
            before, middle, after = c.merge(head, before), c.add(middle, size), c.merge(tail, after)
    if before is not None and after is not None:
        c.set_output(0, c.concatenate(c.concatenate(before, c.vector(middle)), after))


# Biases


def bias_add(c: InferenceContext) -> None:
    """Input 0, whose channel dimension must be as long as the bias, input 1."""
    channels_first = c.attrs.get("data_format") == b"NCHW"
    shape = c.with_rank_at_least(c.input(0), 3 if channels_first else 2)
    bias = c.with_rank(c.input(1), 1)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    channel = 1 if channels_first else -1
    c.set_output(0, c.replace_dim(shape, channel, c.merge_dims(c.dim(shape, channel), c.dim(bias, 0))))


def bias_add_grad(c: InferenceContext) -> None:
    """A vector as long as the channel dimension of input 0."""
    channels_first = c.attrs.get("data_format") == b"NCHW"
    shape = c.with_rank_at_least(c.input(0), 3 if channels_first else 2)
    c.set_output(0, c.vector(c.dim(shape, 1 if channels_first else -1)))


# Slices, gathers, scatters


def slice_shape(c: InferenceContext) -> None:
    """`Slice`: input 0 from begin (input 1), of a size (input 2) in which -1 means to the end."""
    shape = c.input(0)
    begins = c.merge(c.with_rank(c.input(1), 1), c.with_rank(c.input(2), 1))
    rank = c.dim(begins, 0).value
    if rank is not None:
        shape = c.with_rank(shape, rank)
    begin = c.make_shape_from_shape_tensor(1)
    sizes = c.input_tensor(2)
    if sizes is None:
        # An unknown size and a size of -1 look the same here.
        known = c.make_shape_from_shape_tensor(2)
        if known.dims is not None:
            c.with_rank(begin, len(known.dims))
            c.set_output(0, known)
        else:
            c.set_output(0, c.unknown_shape() if shape.dims is None else c.unknown_shape_of_rank(len(shape.dims)))
        return
    begin = c.with_rank(begin, sizes.size)
    dims: list[Dimension | int] = []
    for index, size in enumerate(sizes.reshape(-1).tolist()):
        whole = c.dim(shape, index)
        if size < -1:
            length = -1 if whole.value is None else whole.value
            raise errors.InvalidArgumentError(
                f"Out of bounds slicing on dimension {index} of length {length}: "
                f"sizes vector cannot be < -1, but was {size}"
            )
        dims.append(c.subtract(whole, c.dim(begin, index)) if size == -1 else size)
    c.set_output(0, c.make_shape(dims))


def gather_nd(c: InferenceContext) -> None:
    """indices.shape[:-1] + params.shape[indices.shape[-1]:]; params may be a variable's handle."""
    data = c.input_handle_shapes_and_types(0)
    params = variable_handle_data(c)[0].shape if data is not None else c.input(0)
    indices = c.with_rank_at_least(c.input(1), 1)
    depth = c.dim(indices, -1).value
    if params.dims is None or depth is None:
        c.set_output(0, c.unknown_shape())
        return
    if depth > len(params.dims):
        raise errors.InvalidArgumentError(
            f"indices.shape[-1] must be <= params.rank, but saw indices shape: {indices} and params shape: {params}"
        )
    c.set_output(0, c.concatenate(c.subshape(indices, 0, -1), c.subshape(params, depth)))


def scatter_nd_update(c: InferenceContext) -> None:
    """Check indices and updates against the shape that they are scattered into: input 0, or the variable it refers
    to.
    """
    data = c.input_handle_shapes_and_types(0)
    target = data[0].shape if data is not None and len(data) == 1 else c.input(0)
    scatter_nd_shape(c, c.with_rank_at_least(c.input(1), 1), c.with_rank_at_least(c.input(2), 1), target)
    if data is None and c.num_outputs:
        c.set_output(0, target)


def scatter_nd_shape(c: InferenceContext, indices: Shape, updates: Shape, target: Shape) -> None:
    """Raise InvalidArgumentError if indices and updates cannot be scattered into `target`.

    A scalar update goes to all indices.
    """
    some = (c.num_elements(indices).value or 0) > 0 or (c.num_elements(updates).value or 0) > 0
    if c.num_elements(target).value == 0 and some:
        raise errors.InvalidArgumentError("Indices and updates specified for empty input")
    if not indices.dims or not updates.dims:
        return
    outer = len(indices.dims) - 1
    depth = indices.dims[-1]
    if depth is None:
        return
    try:
        c.merge(c.subshape(indices, 0, outer), c.subshape(updates, 0, outer))
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(
            f"Dimensions [0,{outer}) of indices[shape={indices}] = {c.subshape(indices, 0, outer)} must match "
            f"dimensions [0,{outer}) of updates[shape={updates}] = {c.subshape(updates, 0, outer)}: {error.message}"
        ) from None
    inner_target, inner_updates = c.subshape(target, depth), c.subshape(updates, outer)
    try:
        c.merge(inner_target, inner_updates)
    except errors.InvalidArgumentError as error:
        rank = -1 if target.dims is None else len(target.dims)
        raise errors.InvalidArgumentError(
            f"Dimensions [{depth},{rank}) of input[shape={target}] = {inner_target} must match "
            f"dimensions [{outer},{len(updates.dims)}) of updates[shape={updates}] = {inner_updates}: {error.message}"
        ) from None


def unsorted_segment_reduction(c: InferenceContext) -> None:
    """[num_segments] + data.shape[segment_ids.rank:]; inputs data, segment_ids, num_segments."""
    data, ids = c.input(0), c.input(1)
    c.with_rank(c.input(2), 0)
    if ids.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    data, _ = c.merge_prefix(data, ids)
    count = c.make_dim_for_scalar_input(2)
    c.set_output(0, c.concatenate(c.vector(count), c.subshape(data, len(ids.dims))))


# Sparse tensors and variables


def validate_sparse_tensor(c: InferenceContext, indices: Shape, values: Shape, shape: Shape) -> None:
    """Raise InvalidArgumentError unless these are [n, rank], [n] and [rank]."""
    c.with_rank(indices, 2)
    c.with_rank(values, 1)
    c.with_rank(shape, 1)
    entries, count = c.dim(indices, 0).value, c.dim(values, 0).value
    if entries is not None and count is not None and entries != count:
        raise errors.InvalidArgumentError(f"Number of elements in index ({entries}) and values ({count}) do not match.")
    index_rank, rank = c.dim(indices, 1).value, c.dim(shape, 0).value
    if index_rank is not None and rank is not None and index_rank != rank:
        raise errors.InvalidArgumentError(f"Index rank ({index_rank}) and shape rank ({rank}) do not match.")


def variable_handle_data(c: InferenceContext) -> HandleData:
    """The shape and type of the variable that input 0 refers to; unknown if there is no handle data.

    Raises:
        InvalidArgumentError: its type is not attr `dtype`.
    """
    data = c.input_handle_shapes_and_types(0)
    if not data:
        return (ShapeAndType(c.unknown_shape(), None),)
    dtype = c.attr("dtype")
    if data[0].dtype is not dtype:
        raise errors.InvalidArgumentError(
            f"Trying to read variable with wrong dtype. Expected {dtype_text(data[0].dtype)} got {dtype_text(dtype)}"
        )
    return data


# Short cuts


def _unchanged_rule(
    attrs: Mapping[str, Any], inputs: Sequence[Shape], manager: ShapeManager
) -> tuple[Shape, ...] | None:
    return (inputs[0],)


def _broadcast_rule(
    attrs: Mapping[str, Any], inputs: Sequence[Shape], manager: ShapeManager
) -> tuple[Shape, ...] | None:
    x, y = inputs
    if x.dims == y.dims:
        return (x,) if x is y or (x.dims is not None and None not in x.dims) else None
    if not y.dims and y.dims is not None and x.dims is not None:
        return (x,)
    return (y,) if not x.dims and x.dims is not None and y.dims is not None else None


SHAPE_RULES: dict[ShapeFn | None, ShapeRule] = {
    unchanged_shape: _unchanged_rule,
    broadcast_binary: _broadcast_rule,
}
