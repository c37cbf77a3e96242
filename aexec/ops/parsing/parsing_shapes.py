"""Shape functions of `parsing_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import unknown_shape
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape


def decode_raw(c: InferenceContext) -> None:
    """Input 0 with an unknown dimension appended."""
    c.set_output(0, c.concatenate(c.input(0), c.vector(None)))


def decode_padded_raw(c: InferenceContext) -> None:
    """Input 0 with a dimension of as many elements as fit into the bytes given by input 1."""
    length = c.make_dim_for_scalar_input(1)
    width = c.divide(length, c.attr("out_type").size, evenly=True)
    c.set_output(0, c.concatenate(c.input(0), c.vector(width)))


def decode_csv(c: InferenceContext) -> None:
    """Each column has the shape of the records, input 0; the other inputs are defaults."""
    for index in range(1, c.num_inputs):
        default = c.with_rank_at_most(c.input(index), 1)
        if default.rank == 1 and (c.dim(default, 0).value or 0) > 1:
            raise errors.InvalidArgumentError("Shape of a default must be a length-0 or length-1 vector, or a scalar.")
    for index in range(c.num_outputs):
        c.set_output(index, c.input(0))


def decode_proto(c: InferenceContext) -> None:
    """The shape of the messages, input 0, and the number of fields; then one with a row of values for each field."""
    messages = c.input(0)
    c.set_output(0, c.concatenate(messages, c.vector(c.num_outputs - 1)))
    for index in range(1, c.num_outputs):
        c.set_output(index, c.concatenate(messages, c.vector(None)))


def encode_proto(c: InferenceContext) -> None:
    """That of the values of each field, which are matrices or of higher rank, without the last dimension."""
    messages = c.unknown_shape()
    for index in range(1, c.num_inputs):
        messages = c.merge(messages, c.subshape(c.with_rank_at_least(c.input(index), 2), 0, -1))
    c.set_output(0, messages)


def parse_tensor(c: InferenceContext) -> None:
    """Unknown."""
    unknown_shape(c)


def _set_examples(c: InferenceContext, batch: Shape, num_sparse: int, num_ragged: int = 0) -> None:
    """Sparse features, dense ones, ragged ones, of a scalar or a vector of examples."""
    start = 3 * num_sparse + len(c.attr("dense_shapes"))
    if start + 2 * num_ragged != c.num_outputs:
        raise errors.InvalidArgumentError(
            f"The attrs describe {start + 2 * num_ragged} tensors, but the node has {c.num_outputs} outputs"
        )
    rank = None if batch.dims is None else len(batch.dims) + 1
    for index in range(num_sparse):
        c.set_output(index, c.matrix(None, rank))
        c.set_output(num_sparse + index, c.vector(None))
        c.set_output(2 * num_sparse + index, c.vector(rank))
    for index, shape in enumerate(c.attr("dense_shapes")):
        dense = c.make_shape_from_partial_tensor_shape(shape)
        if dense.dims and dense.dims[0] is None:
            # Rows of varying number are padded to the longest.
            dense = c.replace_dim(dense, 0, None)
        c.set_output(3 * num_sparse + index, c.concatenate(batch, dense))
    for index in range(start, start + num_ragged):
        rows = c.add(c.dim(batch, 0), 1) if batch.dims else c.unknown_dim()
        c.set_output(index, c.vector(None))
        c.set_output(index + num_ragged, c.vector(rows))


def parse_example(c: InferenceContext) -> None:
    """Inputs serialized and names, vectors, and then keys."""
    serialized = c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 1)
    _set_examples(c, serialized, c.attr("Nsparse"))


def parse_single_example(c: InferenceContext) -> None:
    """Input serialized, a scalar."""
    c.with_rank(c.input(0), 0)
    _set_examples(c, c.scalar(), len(c.attr("sparse_keys")))


def parse_example_v2(c: InferenceContext) -> None:
    """A scalar or a vector of examples; ragged features come last."""
    serialized = c.with_rank_at_most(c.input(0), 1)
    _set_examples(c, serialized, c.attr("num_sparse"), len(c.attr("ragged_value_types")))
