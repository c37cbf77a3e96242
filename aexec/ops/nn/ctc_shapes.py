"""Shape functions of `ctc_ops.py`."""

from __future__ import annotations

from aexec.framework.shape_functions.shape_inference import Dimension, InferenceContext, Shape


def _inputs_and_batch(c: InferenceContext, lengths_input: int) -> tuple[Shape, Dimension]:
    inputs = c.with_rank(c.input(0), 3)
    lengths = c.with_rank(c.input(lengths_input), 1)
    return inputs, c.merge_dims(c.dim(inputs, 1), c.dim(lengths, 0))


def ctc_loss(c: InferenceContext) -> None:
    """Loss per sequence, and gradient."""
    c.with_rank(c.input(0), 3)
    indices = c.with_rank(c.input(1), 2)
    values = c.with_rank(c.input(2), 1)
    c.with_rank(c.input(3), 1)
    c.merge_dims(c.dim(indices, 0), c.dim(values, 0))
    inputs, batch = _inputs_and_batch(c, 3)
    c.set_output(0, c.vector(batch))
    c.set_output(1, c.replace_dim(inputs, 1, batch))


def ctc_greedy_decoder(c: InferenceContext) -> None:
    """A sparse tensor, and the log probability of each sequence."""
    _, batch = _inputs_and_batch(c, 1)
    entries = c.unknown_dim()
    c.set_output(0, c.matrix(entries, 2))
    c.set_output(1, c.vector(entries))
    c.set_output(2, c.vector(2))
    c.set_output(3, c.matrix(batch, 1))


def ctc_beam_search_decoder(c: InferenceContext) -> None:
    """Sparse tensors, one per path, and the log probabilities."""
    _, batch = _inputs_and_batch(c, 1)
    paths = c.attr("top_paths")
    for index in range(paths):
        c.set_output(index, c.matrix(None, 2))
        c.set_output(paths + index, c.vector(None))
        c.set_output(2 * paths + index, c.vector(2))
    c.set_output(3 * paths, c.matrix(batch, paths))
