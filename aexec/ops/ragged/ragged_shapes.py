"""Shape functions of `ragged_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import InferenceContext


def ragged_range(c: InferenceContext) -> None:
    """Row splits and values for starts, limits and deltas: scalars or vectors of one length."""
    rows = c.unknown_dim()
    vectors = False
    for index in range(3):
        shape = c.with_rank_at_most(c.input(index), 1)
        if shape.dims is None:
            vectors = True
        elif shape.dims:
            vectors = True
            rows = c.merge_dims(c.dim(shape, 0), rows)
    c.set_output(0, c.vector(c.add(rows, 1) if vectors else 2))
    c.set_output(1, c.vector(None))


def ragged_to_tensor(c: InferenceContext) -> None:
    """The shape given by input 0; if its rank is not known, a dimension per partition and those of the values."""
    shape = c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(0)
    values = c.input(1)
    if shape.dims is None and values.dims:
        partitions = sum(kind != b"FIRST_DIM_SIZE" for kind in c.attr("row_partition_types"))
        shape = c.concatenate(c.unknown_shape_of_rank(partitions + 1), c.subshape(values, 1))
    c.set_output(0, shape)


def ragged_to_sparse(c: InferenceContext) -> None:
    """A sparse tensor with a dimension for each row split and those of the values."""
    splits = c.attr("RAGGED_RANK")
    if splits < 1:
        raise errors.InvalidArgumentError("Requires RAGGED_RANK>0")
    for index in range(splits):
        c.with_rank(c.input(index), 1)
    values = c.with_rank_at_least(c.input(splits), 1)
    rank = None if values.dims is None else len(values.dims) + splits
    entries = c.num_elements(values)
    c.set_output(0, c.matrix(entries, rank))
    c.set_output(1, c.vector(entries))
    c.set_output(2, c.vector(rank))


def ragged_gather(c: InferenceContext) -> None:
    """Row splits and values of the rows at the indices, the last input."""
    splits = c.attr("PARAMS_RAGGED_RANK")
    out_splits = c.attr("OUTPUT_RAGGED_RANK")
    for index in range(splits):
        c.with_rank(c.input(index), 1)
    values = c.with_rank_at_least(c.input(splits), 1)
    c.with_rank(c.input(c.num_inputs - 1), out_splits - splits + 1)
    for index in range(out_splits):
        c.set_output(index, c.vector(None))
    c.set_output(out_splits, c.concatenate(c.vector(None), c.subshape(values, 1)))


def ragged_from_variant(c: InferenceContext) -> None:
    """Row splits and values."""
    splits = c.attr("output_ragged_rank")
    for index in range(splits):
        c.set_output(index, c.vector(None))
    c.set_output(splits, c.unknown_shape())


def ragged_to_variant(c: InferenceContext) -> None:
    """A scalar, or, batched, a variant for each row."""
    splits = c.attr("RAGGED_RANK")
    c.with_rank_at_least(c.input(c.num_inputs - 1), 1)
    for index in range(splits):
        c.with_rank(c.input(index), 1)
    if not c.attr("batched_input"):
        c.set_output(0, c.scalar())
        return
    c.set_output(0, c.vector(c.subtract(c.dim(c.input(0), 0), 1) if splits else None))


def ragged_to_variant_grad(c: InferenceContext) -> None:
    """The shape given by input 2."""
    c.set_output(0, c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(2))
