"""Shape functions of `array_ops`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.shape_functions.common_shape_fns import SHAPE_RULES, validate_sparse_tensor
from aexec.framework.shape_functions.shape_inference import (
    Array,
    Dimension,
    DimensionOrConstant,
    InferenceContext,
    Shape,
    ShapeAndType,
    ShapeManager,
)


def broadcast_args(c: InferenceContext) -> None:
    """A vector as long as the longer of two."""
    x, y = (c.dim(c.with_rank(c.input(i), 1), 0) for i in (0, 1))
    c.set_output(0, c.vector(c.maximum(x, y)))


def broadcast_gradient_args(c: InferenceContext) -> None:
    """Two vectors of axes."""
    for index in (0, 1):
        c.with_rank(c.input(index), 1)
        c.set_output(index, c.vector(None))


def broadcast_to(c: InferenceContext) -> None:
    """The shape given by input 1, refined by the dimensions of input 0 that are not 1."""
    shape = c.input(0)
    out = c.make_shape_from_shape_tensor(1)
    if out.dims is not None and shape.dims is not None:
        c.with_rank_at_most(shape, len(out.dims))
        for offset in range(1, len(shape.dims) + 1):
            dim = c.dim(shape, -offset)
            if (dim.value or 0) > 1:
                out = c.replace_dim(out, -offset, c.merge_dims(dim, c.dim(out, -offset)))
    c.set_output(0, out)


def concat_offset(c: InferenceContext) -> None:
    """Each offset is as long as the shape it belongs to."""
    for index in range(1, c.num_inputs):
        c.set_output(index - 1, c.input(index))


def const(c: InferenceContext) -> None:
    """The shape of attr `value`."""
    c.set_output(0, c.make_shape_from_partial_tensor_shape(c.attr("value").shape))


def _const_rule(attrs: Mapping[str, Any], inputs: Sequence[Shape], manager: ShapeManager) -> tuple[Shape, ...] | None:
    try:
        return (manager.known(attrs["value"].shape.dims),)
    except errors.OpError:
        return None


SHAPE_RULES[const] = _const_rule


def edit_distance(c: InferenceContext) -> None:
    """The larger of both sparse tensors' shapes, without the last dimension."""
    for first in (0, 3):
        validate_sparse_tensor(c, c.input(first), c.input(first + 1), c.input(first + 2))
    hypothesis, truth = c.input_tensor(2), c.input_tensor(5)
    if hypothesis is None or truth is None:
        c.set_output(0, c.unknown_shape())
        return
    if hypothesis.size != truth.size:
        raise errors.InvalidArgumentError(
            f"Num elements of hypothesis_shape does not match truth_shape: {hypothesis.size} vs. {truth.size}"
        )
    sizes = np.maximum(hypothesis.reshape(-1), truth.reshape(-1)).tolist()
    c.set_output(0, c.make_shape(sizes[:-1]))


def empty(c: InferenceContext) -> None:
    """The shape given by input 0."""
    c.set_output(0, c.make_shape_from_shape_tensor(0))


def ensure_shape(c: InferenceContext) -> None:
    """Input 0 merged with attr `shape`."""
    wanted = c.make_shape_from_partial_tensor_shape(c.attr("shape"))
    if wanted.dims is not None:
        c.with_rank(c.input(0), len(wanted.dims))
    c.set_output(0, c.merge(wanted, c.input(0)))


def expand_dims(c: InferenceContext) -> None:
    """Input 0 with a dimension of 1 inserted at the axis in input 1."""
    shape = c.input(0)
    axis_value = c.input_tensor(1)
    if axis_value is not None and axis_value.size != 1:
        raise errors.InvalidArgumentError("'dim' input must be a tensor with a single value")
    if axis_value is None or shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    axis, rank = int(axis_value.reshape(())), len(shape.dims)
    if not -rank - 1 <= axis <= rank:
        raise errors.InvalidArgumentError(f"dim {axis} not in the interval [{-rank - 1}, {rank}].")
    axis += rank + 1 if axis < 0 else 0
    c.set_output(0, c.make_shape([*shape.handles[:axis], 1, *shape.handles[axis:]]))


def fill(c: InferenceContext) -> None:
    """The shape given by input 0."""
    c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 0)
    dims = c.input_tensor(0)
    if dims is not None and dims.size and dims.min() < 0:
        raise errors.InvalidArgumentError("Fill dimensions must be >= 0")
    c.set_output(0, c.make_shape_from_shape_tensor(0))
    data = c.input_handle_shapes_and_types(1)
    if data is not None:
        c.set_output_handle_shapes_and_types(0, data)


def fingerprint(c: InferenceContext) -> None:
    """[batch, bytes of a fingerprint]."""
    c.with_rank_at_least(c.input(0), 1)
    c.with_rank(c.input(1), 0)
    method = c.input_tensor(1)
    if method is not None and method.item() != b"farmhash64":
        raise errors.InvalidArgumentError(f"Unsupported method: {abridged(method.item())}")
    c.set_output(0, c.make_shape((c.dim(c.input(0), 0), None if method is None else 8)))


def identity_n(c: InferenceContext) -> None:
    """Each output has the shape of its input."""
    for index in range(c.num_inputs):
        c.set_output(index, c.input(index))
        data = c.input_handle_shapes_and_types(index)
        if data is not None:
            c.set_output_handle_shapes_and_types(index, data)


def list_diff(c: InferenceContext) -> None:
    """Two vectors of the same, unknown length."""
    c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 1)
    out = c.vector(None)
    c.set_output(0, out)
    c.set_output(1, out)


def _paddings(value: Array) -> list[int]:
    sums = []
    for before, after in value.tolist():
        if before < 0 or after < 0:
            raise errors.InvalidArgumentError("Paddings must be non-negative")
        sums.append(before + after)
    return sums


def pad(c: InferenceContext) -> None:
    """Input 0 plus, in each dimension, both numbers in a row of input 1."""
    shape = c.input(0)
    paddings = c.with_rank(c.input(1), 2)
    c.with_value(c.dim(paddings, 1), 2)
    rows = c.dim(paddings, 0)
    if rows.value is not None:
        shape = c.with_rank(shape, rows.value)
    elif shape.dims is not None:
        rows = c.with_value(rows, len(shape.dims))
    value = c.input_tensor(1)
    if value is None:
        c.set_output(0, c.unknown_shape() if rows.value is None else c.unknown_shape_of_rank(rows.value))
        return
    shape = c.with_rank(shape, value.shape[0])
    c.set_output(0, c.make_shape(map(c.add, shape.handles, _paddings(value))))


def mirror_pad_grad(c: InferenceContext) -> None:
    """Input 0 minus, in each dimension, both numbers in a row of input 1."""
    paddings = c.with_rank(c.input(1), 2)
    rank = c.dim(paddings, 0).value
    if rank is None:
        c.set_output(0, c.unknown_shape())
        return
    shape = c.with_rank(c.input(0), rank)
    c.merge(paddings, c.matrix(rank, 2))
    value = c.input_tensor(1)
    if value is None:
        c.set_output(0, c.unknown_shape_of_rank(rank))
    else:
        c.set_output(0, c.make_shape(map(c.subtract, shape.handles, _paddings(value))))


def one_hot(c: InferenceContext) -> None:
    """Input 0 with a dimension of `depth` inserted at `axis`."""
    axis = c.attr("axis")
    if axis < -1:
        raise errors.InvalidArgumentError("axis must be >= -1")
    depth = c.make_dim_for_scalar_input(1)
    indices = c.input(0)
    if indices.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    place = axis % (len(indices.dims) + 1)
    c.set_output(0, c.make_shape([*indices.handles[:place], depth, *indices.handles[place:]]))


def _stacking_axis(c: InferenceContext, rank: int) -> int:
    axis: int = c.attr("axis")
    if not -rank <= axis < rank:
        raise errors.InvalidArgumentError(f"Invalid axis: {axis}; must be in [{-rank},{rank})")
    return axis % rank


def _merge_all(c: InferenceContext, shape: Shape, indices: range) -> Shape:
    for index in indices:
        try:
            shape = c.merge(c.input(index), shape)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message}\n\tFrom merging shape {index} with other shapes."
            ) from None
    return shape


def pack(c: InferenceContext) -> None:
    """The inputs' common shape with a dimension as long as their number inserted at `axis`."""
    count = c.num_inputs
    shape = _merge_all(c, c.input(count - 1), range(count - 2, -1, -1))
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    axis = _stacking_axis(c, len(shape.dims) + 1)
    c.set_output(0, c.make_shape([*shape.handles[:axis], count, *shape.handles[axis:]]))
    known = [d for d in map(c.input_handle_shapes_and_types, range(count)) if d is not None]
    if known:
        relaxed = known[0]
        for data in known[1:]:
            relaxed = tuple(
                ShapeAndType(c.relax(a.shape, b.shape), a.dtype) for a, b in zip(relaxed, data, strict=False)
            )
        c.set_output_handle_shapes_and_types(0, relaxed)


def unpack(c: InferenceContext) -> None:
    """Input 0 without the dimension `axis`, whose size is the number of outputs."""
    shape = c.input(0)
    out = c.unknown_shape()
    if shape.dims is not None:
        axis = _stacking_axis(c, len(shape.dims))
        c.with_value(c.dim(shape, axis), c.num_outputs)
        out = c.make_shape([d for i, d in enumerate(shape.handles) if i != axis])
    data = c.input_handle_shapes_and_types(0)
    for index in range(c.num_outputs):
        c.set_output(index, out)
        if data is not None:
            c.set_output_handle_shapes_and_types(index, data)


def parallel_concat(c: InferenceContext) -> None:
    """Attr `shape`, of which each input is one row."""
    whole = c.make_shape_from_partial_tensor_shape(c.attr("shape"))
    if not whole.is_fully_defined:
        raise errors.InvalidArgumentError("shape attr must be fully defined.")
    row = c.replace_dim(whole, 0, 1)
    for index in range(c.num_inputs):
        shape = c.input(index)
        if not shape.is_fully_defined:
            raise errors.InvalidArgumentError("All input shapes must be fully defined.")
        if not shape.dims:
            raise errors.InvalidArgumentError(
                f"The rank of all input shapes must be greater than 0, but input {index} had rank 0."
            )
        if shape.dims[0] != 1:
            raise errors.InvalidArgumentError("Size of first dimension must be 1.")
        row = _merge_all(c, row, range(index, index + 1))
    c.set_output(0, whole)


def placeholder(c: InferenceContext) -> None:
    """Attr `shape`; in graphs up to version 21 a scalar there means unknown."""
    shape = c.attr("shape")
    unsaid = c.graph_version <= 21 and shape.rank == 0
    c.set_output(0, c.unknown_shape() if unsaid else c.make_shape_from_partial_tensor_shape(shape))


def placeholder_with_default(c: InferenceContext) -> None:
    """Attr `shape`, with which input 0 must agree."""
    shape = c.make_shape_from_partial_tensor_shape(c.attr("shape"))
    c.merge(c.input(0), shape)
    c.set_output(0, shape)


def reshape(c: InferenceContext) -> None:
    """The shape given by input 1; one unknown size follows from the number of elements."""
    shape, out = c.input(0), c.make_shape_from_shape_tensor(1)
    c.set_output(0, out if out.dims is None or shape.dims is None else reshaped(c, shape, out))


def reshaped(c: InferenceContext, shape: Shape, out: Shape) -> Shape:
    """`out`, refined by the number of elements of `shape`.

    Raises:
        InvalidArgumentError: it cannot hold as many elements.
    """
    in_count, in_unknown = _known_elements(c, shape)
    out_count, out_unknown = _known_elements(c, out)
    if len(in_unknown) > 1 or len(out_unknown) > 1:
        return out
    if not in_unknown and not out_unknown:
        if in_count.value != out_count.value:
            raise errors.InvalidArgumentError(
                f"Cannot reshape a tensor with {in_count} elements to shape {out} ({out_count} elements)"
            )
        return out
    if not in_unknown:
        if out_count.value == 0:
            return out
        return c.replace_dim(out, out_unknown[0], c.divide(in_count, out_count, evenly=True))
    if not out_unknown:
        if in_count.value != 0:
            c.merge_dims(c.dim(shape, in_unknown[0]), c.divide(out_count, in_count, evenly=True))
        return out
    if in_count.value == out_count.value:
        return c.replace_dim(out, out_unknown[0], c.dim(shape, in_unknown[0]))
    return out


def _known_elements(c: InferenceContext, shape: Shape) -> tuple[Dimension, list[int]]:
    """The product of the known dimensions, and which are unknown; a known 0 makes the product 0."""
    count = c.num_elements(shape)
    if count.value is not None:
        return count, []
    count = c.make_dim(1)
    unknown = []
    for index, dim in enumerate(shape.handles):
        if dim.value is None:
            unknown.append(index)
        else:
            count = c.multiply(count, dim)
    return count, unknown


def reverse(c: InferenceContext) -> None:
    """Input 0; input 1 has a flag for each dimension."""
    shape = c.input(0)
    flags = c.dim(c.with_rank(c.input(1), 1), 0).value
    if flags is not None:
        shape = c.with_rank(shape, flags)
    _check_reversible(shape)
    c.set_output(0, shape)


def _check_reversible(shape: Shape) -> None:
    if shape.dims is not None and len(shape.dims) > 8:
        raise errors.InvalidArgumentError("reverse does not work on tensors with more than 8 dimensions")


def reverse_v2(c: InferenceContext) -> None:
    """Input 0; input 1 lists axes, each once."""
    shape = c.input(0)
    c.with_rank(c.input(1), 1)
    _check_reversible(shape)
    axes = c.input_tensor(1)
    if axes is not None and shape.dims is not None:
        rank = len(shape.dims)
        seen = set()
        for index, given in enumerate(axes.tolist()):
            axis = given + rank if given < 0 else given
            if not 0 <= axis < rank:
                raise errors.InvalidArgumentError(f"'axis'[{index}] = {given} is out of valid range [0, {rank - 1}")
            if axis in seen:
                raise errors.InvalidArgumentError(f"axis {axis} specified more than once.")
            seen.add(axis)
    c.set_output(0, shape)


def reverse_sequence(c: InferenceContext) -> None:
    """Input 0, of which dimension `batch_dim` is as long as input 1."""
    shape = c.input(0)
    lengths = c.with_rank(c.input(1), 1)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    rank = len(shape.dims)
    batch_dim, seq_dim = c.attr("batch_dim"), c.attr("seq_dim")
    for name, axis in (("batch_dim", batch_dim), ("seq_dim", seq_dim)):
        if axis >= rank:
            raise errors.InvalidArgumentError(f"{name} must be < input rank: {axis} vs. {rank}")
    if batch_dim < 0:
        raise errors.InvalidArgumentError(f"batch_dim must be >=0, got {batch_dim}")
    batch = c.merge_dims(c.dim(shape, batch_dim), c.dim(lengths, 0))
    c.set_output(0, c.replace_dim(shape, batch_dim, batch))


def roll(c: InferenceContext) -> None:
    """Input 0, at least a vector; shift and axis are both scalars or vectors of one length."""
    c.set_output(0, c.with_rank_at_least(c.input(0), 1))
    shift = c.with_rank_at_most(c.input(1), 1)
    axis = c.with_rank_at_most(c.input(2), 1)
    c.merge(shift, axis)


def shape_of(c: InferenceContext) -> None:
    """For each input a vector as long as its rank."""
    for index in range(c.num_inputs):
        dims = c.input(index).dims
        c.set_output(index, c.vector(None if dims is None else len(dims)))


def split(c: InferenceContext) -> None:
    """Input 1 with the dimension given by input 0 divided by the number of outputs."""
    shape = c.input(1)
    axis = c.make_dim_for_scalar_input_with_negative_indexing(0, shape.rank).value
    if axis is None:
        out = c.unknown_shape() if shape.dims is None else c.unknown_shape_of_rank(len(shape.dims))
    else:
        c.with_rank_at_least(shape, axis + 1)
        try:
            part = c.divide(c.dim(shape, axis), c.num_outputs, evenly=True)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message}\n\tNumber of ways to split should evenly divide the split dimension"
            ) from None
        out = c.replace_dim(shape, axis, part)
    for index in range(c.num_outputs):
        c.set_output(index, out)


def split_v(c: InferenceContext) -> None:
    """Input 0 with the dimension given by input 2 divided into the sizes of input 1."""
    shape = c.input(0)
    axis = c.make_dim_for_scalar_input_with_negative_indexing(2, shape.rank).value
    sizes = c.input_tensor(1)
    if shape.dims is None:
        outputs = [c.unknown_shape() for _ in range(c.num_outputs)]
    elif not shape.dims:
        raise errors.InvalidArgumentError("Can't split scalars")
    elif axis is None:
        if sizes is not None:
            _split_sizes(c, sizes.reshape(-1).tolist(), None)
        outputs = [c.unknown_shape_of_rank(len(shape.dims)) for _ in range(c.num_outputs)]
    elif sizes is None:
        outputs = [c.replace_dim(shape, axis, None) for _ in range(c.num_outputs)]
    else:
        c.with_rank_at_least(shape, axis + 1)
        outputs = [
            c.replace_dim(shape, axis, size)
            for size in _split_sizes(c, sizes.reshape(-1).tolist(), c.dim(shape, axis).value)
        ]
    for index, out in enumerate(outputs):
        c.set_output(index, out)


def _split_sizes(c: InferenceContext, sizes: list[int], whole: int | None) -> list[int | None]:
    if len(sizes) != c.num_outputs:
        raise errors.InvalidArgumentError("Length of size_splits should be equal to num_outputs")
    if sizes.count(-1) > 1:
        raise errors.InvalidArgumentError("size_splits can only have one -1")
    total = sum(size for size in sizes if size != -1)
    found: list[int | None] = []
    for index, given in enumerate(sizes):
        size = whole - total if given == -1 and whole is not None else given
        if size < -1 or (size == -1 and whole is not None):
            raise errors.InvalidArgumentError(f"Split size at index {index} must be >= 0. Got: {size}")
        found.append(None if size == -1 else size)
    if whole is not None and (total > whole if -1 in sizes else total != whole):
        pieces = ",".join(map(str, sizes))
        raise errors.InvalidArgumentError(f"can't split axis of size {whole} into pieces of size [{pieces}]")
    return found


def squeeze(c: InferenceContext) -> None:
    """Input 0 without the dimensions `squeeze_dims`, or without all that are 1 if none is listed."""
    shape = c.input(0)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    rank = len(shape.dims)
    listed = c.attr("squeeze_dims")
    for index, axis in enumerate(listed):
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(f"squeeze_dims[{index}] not in [{-rank},{rank}).")
    if not listed:
        if None in shape.dims:
            # The size of an unknown dimension decides whether it is removed.
            c.set_output(0, c.unknown_shape())
        else:
            c.set_output(0, c.make_shape([d for d in shape.dims if d != 1]))
        return
    squeezed = {axis % rank for axis in listed}
    for axis in sorted(squeezed):
        if shape.dims[axis] not in (None, 1):
            raise errors.InvalidArgumentError(
                f"Can not squeeze dim[{axis}], expected a dimension of 1, got {shape.dims[axis]}"
            )
    c.set_output(0, c.make_shape([d for i, d in enumerate(shape.handles) if i not in squeezed]))


def tile(c: InferenceContext) -> None:
    """Input 0 times, in each dimension, a number of input 1."""
    shape = c.input(0)
    multiples = c.make_shape_from_shape_tensor(1)
    if shape.dims is not None:
        multiples = c.with_rank(multiples, len(shape.dims))
    elif multiples.dims is not None:
        shape = c.with_rank(shape, len(multiples.dims))
    else:
        c.set_output(0, c.unknown_shape())
        return
    c.set_output(0, c.make_shape(map(c.multiply, shape.handles, multiples.handles)))


def transpose(c: InferenceContext) -> None:
    """Input 0 with its dimensions in the order of input 1."""
    shape, order_shape = c.input(0), c.input(1)
    order = c.input_tensor(1)
    count = c.num_elements(order_shape)
    if shape.dims is None and count.value is None and order is None:
        c.set_output(0, c.unknown_shape())
        return
    if shape.dims is not None:
        rank = len(shape.dims)
    else:
        rank = count.value if count.value is not None else order.size if order is not None else 0
        if rank < 2:
            # TensorFlow lets one axis stand for a vector or a scalar; both keep their shape.
            c.set_output(0, shape)
            return
    shape = c.with_rank(shape, rank)
    c.with_rank(order_shape, 1)
    c.with_value(count, rank)
    dims: list[DimensionOrConstant] = [None] * rank
    if order is not None:
        for index, axis in enumerate(order.tolist()):
            if axis >= rank or axis <= -rank:
                raise errors.InvalidArgumentError(f"perm dim {axis} is out of range of input rank {rank}")
            dims[index] = c.dim(shape, axis)
    c.set_output(0, c.make_shape(dims))


def unique(c: InferenceContext) -> None:
    """A vector of unknown length, and one as long as input 0."""
    c.with_rank(c.input(0), 1)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.input(0))


def unique_with_counts(c: InferenceContext) -> None:
    """Like `unique`, with one count per distinct element."""
    distinct = c.vector(None)
    c.set_output(0, distinct)
    c.set_output(1, c.input(0))
    c.set_output(2, distinct)


def unique_v2(c: InferenceContext) -> None:
    """The distinct parts along the axis in input 1 (an empty one: of a vector), positions, and counts if the op has
    them.
    """
    shape = c.input(0)
    c.set_output(0, c.unknown_shape() if shape.dims is None else c.unknown_shape_of_rank(len(shape.dims)))
    if c.num_outputs > 2:
        c.set_output(2, c.vector(None))
    axes = c.input_tensor(1)
    if axes is None or shape.dims is None:
        c.set_output(1, c.vector(None))
        return
    if axes.ndim != 1:
        raise errors.InvalidArgumentError("axis expects a 1D vector.")
    if axes.size > 1:
        raise errors.InvalidArgumentError("axis does not support input tensors larger than 1 elements.")
    rank = len(shape.dims)
    if not axes.size and rank != 1:
        raise errors.InvalidArgumentError("x expects a 1D vector.")
    axis = int(axes[0]) if axes.size else 0
    if not -rank <= axis < rank:
        raise errors.InvalidArgumentError(f"axis expects to be in the range [{-rank}, {rank})")
    c.set_output(1, c.vector(c.dim(shape, axis)))


def unravel_index(c: InferenceContext) -> None:
    """[dims], or [dims, indices] for more than one index."""
    indices = c.input(0)
    rank = c.dim(c.with_rank(c.input(1), 1), 0)
    if indices.dims is None:
        c.set_output(0, c.unknown_shape())
    elif not indices.dims:
        c.set_output(0, c.vector(rank))
    else:
        c.set_output(0, c.matrix(rank, c.num_elements(indices)))


def where(c: InferenceContext) -> None:
    """[true elements, rank of input 0]."""
    c.set_output(0, c.matrix(None, c.input(0).rank))
