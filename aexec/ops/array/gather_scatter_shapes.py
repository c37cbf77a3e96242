"""Shape functions of `gather_scatter_ops.py`."""

from __future__ import annotations

from aexec.framework.shape_functions.common_shape_fns import scatter_nd_shape
from aexec.framework.shape_functions.shape_inference import InferenceContext


def gather(c: InferenceContext) -> None:
    """indices.shape + params.shape[1:]."""
    params = c.with_rank_at_least(c.input(0), 1)
    c.set_output(0, c.concatenate(c.input(1), c.subshape(params, 1)))


def gather_v2(c: InferenceContext) -> None:
    """params.shape with dimension `axis` replaced by indices.shape, batch dimensions once."""
    params, indices = c.with_rank_at_least(c.input(0), 1), c.input(1)
    c.with_rank(c.input(2), 0)
    axis_value = c.input_tensor(2)
    batch_dims = c.attr("batch_dims")
    if axis_value is None:
        if params.dims is None or indices.dims is None:
            c.set_output(0, c.unknown_shape())
        else:
            rank = len(params.dims) + len(indices.dims) - 1 - batch_dims
            c.set_output(0, c.unknown_shape_of_rank(max(rank, 0)))
        return
    axis = int(axis_value)
    c.with_rank_at_least(params, -axis if axis < 0 else axis + 1)
    c.with_rank_at_least(indices, abs(batch_dims))
    if batch_dims < 0:
        if indices.dims is None:
            c.set_output(0, c.unknown_shape())
            return
        batch_dims += len(indices.dims)
    c.with_rank_at_least(params, batch_dims + 1)
    out = c.concatenate(c.subshape(params, 0, axis), c.subshape(indices, batch_dims))
    if axis != -1:
        out = c.concatenate(out, c.subshape(params, axis + 1))
    c.set_output(0, out)


def scatter_nd(c: InferenceContext) -> None:
    """The shape given by input 2; inputs 0 and 1 are indices and updates."""
    indices = c.with_rank_at_least(c.input(0), 1)
    updates = c.with_rank_at_least(c.input(1), 1)
    out = c.make_shape_from_shape_tensor(2)
    scatter_nd_shape(c, indices, updates, out)
    c.set_output(0, out)


def tensor_scatter(c: InferenceContext) -> None:
    """Input 0; inputs 1 and 2 are indices and updates."""
    out = c.with_rank_at_least(c.input(0), 1)
    indices = c.with_rank_at_least(c.input(1), 1)
    scatter_nd_shape(c, indices, c.input(2), out)
    c.set_output(0, out)


def dynamic_partition(c: InferenceContext) -> None:
    """Parts of unknown length of data; partitions has the leading dimensions of data."""
    data, partitions = c.input(0), c.input(1)
    out = c.unknown_shape()
    if partitions.dims is not None:
        c.merge_prefix(data, partitions)
        out = c.concatenate(c.vector(None), c.subshape(data, len(partitions.dims)))
    for index in range(c.num_outputs):
        c.set_output(index, out)


def dynamic_stitch(c: InferenceContext) -> None:
    """[largest index + 1], followed by the dimensions of data behind those of indices."""
    count = c.attr("N")
    rest = c.unknown_shape()
    size: int | None = 0
    for index in range(count):
        value = c.input_tensor(index)
        if value is None or size is None:
            size = None
        else:
            size = max(size, int(value.max(initial=-1)) + 1)
        indices, data = c.input(index), c.input(index + count)
        if indices.dims is not None:
            c.merge_prefix(data, indices)
            rest = c.merge(rest, c.subshape(data, len(indices.dims)))
    c.set_output(0, c.concatenate(c.vector(size), rest))
