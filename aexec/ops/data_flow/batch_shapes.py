"""Shape functions of `batch_ops.py`."""

from __future__ import annotations

from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape


def _of_other_rows(c: InferenceContext, shape: Shape) -> Shape:
    return shape if shape.dims is None else c.replace_dim(shape, 0, None)


def batch(c: InferenceContext) -> None:
    """The tensors with any number of rows; their index, with a row for each step; and a key."""
    count = c.num_inputs
    for index in range(count):
        c.set_output(index, _of_other_rows(c, c.input(index)))
    c.set_output(count, c.matrix(None, 3))
    c.set_output(count + 1, c.scalar())


def unbatch(c: InferenceContext) -> None:
    """Input 0 with any number of rows."""
    c.set_output(0, _of_other_rows(c, c.input(0)))


def unbatch_grad(c: InferenceContext) -> None:
    """As input 2, with any sizes."""
    rank = c.input(2).rank
    c.set_output(0, c.unknown_shape() if rank is None else c.unknown_shape_of_rank(rank))
