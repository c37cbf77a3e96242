"""Shape functions of `set_ops.py` and `sparse_ops.py`."""

from __future__ import annotations

import numpy as np

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import unknown_shape, validate_sparse_tensor
from aexec.framework.shape_functions.shape_inference import DimensionOrConstant, InferenceContext


def _set_sparse(c: InferenceContext, first: int, rank: DimensionOrConstant, step: int = 1) -> None:
    """Outputs `first`, `first + step`, … are a sparse tensor of that rank."""
    entries = c.unknown_dim()
    c.set_output(first, c.matrix(entries, rank))
    c.set_output(first + step, c.vector(entries))
    c.set_output(first + 2 * step, c.vector(rank))


def _check_ranks(c: InferenceContext, *ranks: int) -> None:
    for index, rank in enumerate(ranks):
        c.with_rank(c.input(index), rank)


def add_sparse_to_map(c: InferenceContext) -> None:
    """A scalar handle for a sparse tensor."""
    _check_ranks(c, 2, 1, 1)
    c.set_output(0, c.scalar())


def add_many_sparse_to_map(c: InferenceContext) -> None:
    """A handle for each row of a sparse tensor."""
    _check_ranks(c, 2, 1, 1)
    c.set_output(0, c.vector(None))


def sparse_from_handles(c: InferenceContext) -> None:
    """A sparse tensor of unknown rank for a vector of handles."""
    c.with_rank(c.input(0), 1)
    _set_sparse(c, 0, None)


def deserialize_many_sparse(c: InferenceContext) -> None:
    """A sparse tensor from rows of three strings."""
    c.with_value(c.dim(c.with_rank(c.input(0), 2), 1), 3)
    _set_sparse(c, 0, None)


def deserialize_sparse(c: InferenceContext) -> None:
    """A sparse tensor; the last dimension of the input is 3."""
    c.with_value(c.dim(c.with_rank_at_least(c.input(0), 1), -1), 3)
    _set_sparse(c, 0, None)


def serialize_many_sparse(c: InferenceContext) -> None:
    """Rows of three strings."""
    _check_ranks(c, 2, 1, 1)
    c.set_output(0, c.matrix(None, 3))


def serialize_sparse(c: InferenceContext) -> None:
    """Three strings."""
    _check_ranks(c, 2, 1, 1)
    c.set_output(0, c.vector(3))


def sparse_add(c: InferenceContext) -> None:
    """A sparse tensor with the shape of the first."""
    shape = c.with_rank(c.input(2), 1)
    _set_sparse(c, 0, c.dim(shape, 0))
    c.set_output(2, shape)


def sparse_add_grad(c: InferenceContext) -> None:
    """Gradients as long as both tensors have entries."""
    for index in (0, 1):
        c.set_output(index, c.vector(c.dim(c.with_rank(c.input(index + 1), 2), 0)))


def dense_mat_mul(c: InferenceContext) -> None:
    """Product of a sparse matrix, inputs 0 to 2, and a dense one."""
    c.with_rank(c.input(0), 2)
    c.with_rank(c.input(1), 1)
    a = c.with_rank(c.make_shape_from_shape_tensor(2), 2)
    b = c.with_rank(c.input(3), 2)
    rows, inner_a = a.handles[::-1] if c.attr("adjoint_a") else a.handles
    inner_b, columns = b.handles[::-1] if c.attr("adjoint_b") else b.handles
    c.merge_dims(inner_a, inner_b)
    c.set_output(0, c.matrix(rows, columns))


def to_dense(c: InferenceContext) -> None:
    """The shape given by input 1."""
    c.set_output(0, c.make_shape_from_shape_tensor(1))


def concat(c: InferenceContext) -> None:
    """The entries of all inputs together."""
    count = c.num_inputs // 3
    entries, rank = c.make_dim(0), c.unknown_dim()
    shape = c.unknown_shape()
    for index in range(count):
        indices = c.with_rank(c.input(index), 2)
        values = c.with_rank(c.input(index + count), 1)
        one = c.with_rank(c.input(index + 2 * count), 1)
        entries = c.add(entries, c.merge_dims(c.dim(indices, 0), c.dim(values, 0)))
        rank = c.merge_dims(rank, c.dim(indices, 1))
        shape = c.merge(shape, one)
    c.set_output(0, c.matrix(entries, rank))
    c.set_output(1, c.vector(entries))
    c.set_output(2, shape)


def split(c: InferenceContext) -> None:
    """Sparse tensors with as many dimensions as the value of input 3."""
    shape = c.input(3)
    count = c.attr("num_split")
    for index in range(count):
        _set_sparse(c, index, c.num_elements(shape), count)
        c.set_output(index + 2 * count, shape)


def slice_sparse(c: InferenceContext) -> None:
    """A sparse tensor with the rank of the input."""
    shape = c.input(2)
    _set_sparse(c, 0, c.num_elements(shape))
    c.set_output(2, shape)


def slice_grad(c: InferenceContext) -> None:
    """A gradient for each entry of the input."""
    c.set_output(0, c.vector(c.dim(c.with_rank(c.input(1), 2), 0)))


def reorder(c: InferenceContext) -> None:
    """Indices and values in order."""
    indices = c.with_rank(c.input(0), 2)
    values = c.with_rank(c.input(1), 1)
    c.with_rank(c.input(2), 1)
    c.set_output(0, indices)
    c.set_output(1, values)


def reshape(c: InferenceContext) -> None:
    """Indices with as many columns as the new shape has dimensions."""
    indices = c.with_rank(c.input(0), 2)
    c.with_rank(c.input(1), 1)
    new_shape = c.with_rank(c.input(2), 1)
    c.set_output(0, c.matrix(c.dim(indices, 0), c.dim(new_shape, 0)))
    c.set_output(1, new_shape)


def reduce_dense(c: InferenceContext) -> None:
    """The shape given by input 2 without the axes that input 3 lists (or with 1 in their place)."""
    shape, axes = c.input_tensor(2), c.input_tensor(3)
    if shape is None or axes is None:
        unknown_shape(c)
        return
    sizes = shape.reshape(-1).tolist()
    reduced = {axis % len(sizes) for axis in np.unique(axes).tolist()} if sizes else set()
    if c.attr("keep_dims"):
        c.set_output(0, c.make_shape([1 if i in reduced else size for i, size in enumerate(sizes)]))
    else:
        c.set_output(0, c.make_shape([size for i, size in enumerate(sizes) if i not in reduced]))


def dense_cwise(c: InferenceContext) -> None:
    """A value for each entry."""
    c.set_output(0, c.vector(c.dim(c.with_rank(c.input(0), 2), 0)))


def softmax(c: InferenceContext) -> None:
    """A value for each entry."""
    c.with_rank(c.input(0), 2)
    values = c.with_rank(c.input(1), 1)
    c.with_rank(c.input(2), 1)
    c.set_output(0, values)


def sparse_sparse(c: InferenceContext) -> None:
    """A sparse tensor of unknown number of entries."""
    _check_ranks(c, 2, 1, 1, 2, 1, 1)
    entries = c.unknown_dim()
    c.set_output(0, c.matrix(entries, None))
    c.set_output(1, c.vector(entries))


def dense_add(c: InferenceContext) -> None:
    """The dense tensor, input 3."""
    c.set_output(0, c.input(3))


def fill_empty_rows(c: InferenceContext) -> None:
    """A sparse tensor, which rows were empty, and where entries went."""
    indices = c.with_rank(c.input(0), 2)
    values = c.with_rank(c.input(1), 1)
    shape = c.with_rank(c.input(2), 1)
    c.with_rank(c.input(3), 0)
    entries = c.merge_dims(c.dim(indices, 0), c.dim(values, 0))
    rank = c.dim(shape, 0)
    c.merge_dims(c.dim(indices, 1), rank)
    if c.num_elements(shape).value == 0:
        raise errors.InvalidArgumentError("dense_shape must not be empty")
    rows = c.dim(c.make_shape_from_shape_tensor(2), 0)
    filled = c.unknown_dim()
    c.set_output(0, c.matrix(filled, rank))
    c.set_output(1, c.vector(filled))
    c.set_output(2, c.vector(rows))
    c.set_output(3, c.vector(entries))


def fill_empty_rows_grad(c: InferenceContext) -> None:
    """Gradients of values and of the default."""
    places = c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 1)
    c.set_output(0, places)
    c.set_output(1, c.scalar())


def cross(c: InferenceContext) -> None:
    """A sparse matrix."""
    _set_sparse(c, 0, 2)


def dense_count(c: InferenceContext) -> None:
    """A sparse tensor with the rank of input 0."""
    _set_sparse(c, 0, c.input(0).rank)


def sparse_count(c: InferenceContext) -> None:
    """A sparse tensor with the rank of the input's."""
    _set_sparse(c, 0, c.dim(c.with_rank(c.input(0), 2), 1))


def sparse_bincount(c: InferenceContext) -> None:
    """For each row of a matrix the number of bins that input 3 gives."""
    size = c.input_tensor(3)
    if size is None:
        unknown_shape(c)
        return
    if size.ndim != 0:
        raise errors.InvalidArgumentError(f"Shape must be rank 0 but is rank {size.ndim}")
    if size < 0:
        raise errors.InvalidArgumentError(f"size ({size}) must be non-negative")
    shape = c.input_tensor(2)
    if shape is None:
        unknown_shape(c)
    elif shape.size == 1:
        c.set_output(0, c.vector(int(size)))
    elif shape.size == 2:
        c.set_output(0, c.matrix(int(shape.reshape(-1)[0]), int(size)))
    else:
        raise errors.InvalidArgumentError("Input must be less than rank 2")


def set_size(c: InferenceContext) -> None:
    """Unknown: the shape is a value."""
    unknown_shape(c)


def dense_to_dense(c: InferenceContext) -> None:
    """Sets in both dense tensors, one by one."""
    first, second = c.with_rank_at_least(c.input(0), 2), c.input(1)
    if first.dims is not None:
        second = c.with_rank(second, len(first.dims))
        c.merge(c.subshape(first, 0, -1), c.subshape(second, 0, -1))
    else:
        second = c.with_rank_at_least(second, 2)
    _set_sparse(c, 0, second.rank)


def dense_to_sparse(c: InferenceContext) -> None:
    """Sets in a dense tensor and in a sparse one, inputs 1 to 3."""
    validate_sparse_tensor(c, c.input(1), c.input(2), c.input(3))
    rank = c.dim(c.input(3), 0)
    if rank.value is not None:
        c.with_rank(c.input(0), rank.value)
    elif c.input(0).dims is not None:
        c.with_rank_at_least(c.input(0), 2)
        rank = c.make_dim(c.input(0).rank)
    _set_sparse(c, 0, rank)


def sparse_to_sparse(c: InferenceContext) -> None:
    """Sets in two sparse tensors."""
    validate_sparse_tensor(c, c.input(0), c.input(1), c.input(2))
    validate_sparse_tensor(c, c.input(3), c.input(4), c.input(5))
    first, second = c.dim(c.input(2), 0), c.dim(c.input(5), 0)
    if first.value is not None:
        c.with_value(second, first.value)
    _set_sparse(c, 0, first if first.value is not None else second)


def ragged_fill_empty_rows(c: InferenceContext) -> None:
    """Row ids and values, which rows were empty, and where entries went."""
    rows = c.with_rank(c.input(0), 1)
    values = c.with_rank(c.input(1), 1)
    c.with_rank(c.input(2), 0)
    c.with_rank(c.input(3), 0)
    entries = c.merge_dims(c.dim(rows, 0), c.dim(values, 0))
    filled = c.vector(None)
    for index in range(2):
        c.set_output(index, filled)
    c.set_output(2, c.vector(None))
    c.set_output(3, c.vector(entries))


def ragged_count(c: InferenceContext) -> None:
    """A sparse tensor with a dimension more than the values, input 1."""
    rank = c.input(1).rank
    _set_sparse(c, 0, None if rank is None else rank + 1)
