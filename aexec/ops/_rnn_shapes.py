"""Shape functions of `rnn_ops` and `ctc_ops`."""

from __future__ import annotations

from aexec.framework.shape_inference import Dimension, InferenceContext, Shape


def _batch_and_cells(c: InferenceContext) -> tuple[Dimension, Dimension]:
    """Rows of x, input 0, and columns of the previous state, input 1."""
    x = c.with_rank(c.input(0), 2)
    previous = c.with_rank(c.input(1), 2)
    return c.dim(x, 0), c.dim(previous, 1)


def block_cell(c: InferenceContext) -> None:
    """All outputs are [batch, cells]."""
    out = c.matrix(*_batch_and_cells(c))
    for index in range(c.num_outputs):
        c.set_output(index, out)


def lstm_block_cell_grad(c: InferenceContext) -> None:
    """Gradients of the state, of the four gates, and of the three peepholes."""
    batch, cells = _batch_and_cells(c)
    c.set_output(0, c.matrix(batch, cells))
    c.set_output(1, c.matrix(batch, c.multiply(cells, 4)))
    for index in (2, 3, 4):
        c.set_output(index, c.vector(cells))


def gru_block_cell_grad(c: InferenceContext) -> None:
    """Gradients of x, of the state, of the candidate, and of both gates."""
    x = c.with_rank(c.input(0), 2)
    batch, cells = _batch_and_cells(c)
    w_ru = c.with_rank(c.input(2), 2)
    c.set_output(0, x)
    c.set_output(1, c.matrix(batch, cells))
    c.set_output(2, c.matrix(batch, cells))
    c.set_output(3, c.matrix(batch, c.dim(w_ru, 1)))


def block_lstm(c: InferenceContext) -> None:
    """All outputs are [time, batch, cells]."""
    x = c.with_rank(c.input(1), 3)
    bias = c.with_rank(c.input(c.num_inputs - 1), 1)
    cells = c.divide(c.dim(bias, 0), 4, evenly=True)
    out = c.make_shape((c.dim(x, 0), c.dim(x, 1), cells))
    for index in range(c.num_outputs):
        c.set_output(index, out)


def block_lstm_grad(c: InferenceContext) -> None:
    """Each gradient is as what it belongs to: inputs 1 to 8."""
    for index, rank in enumerate((3, 2, 2, 2, 1, 1, 1, 1)):
        c.set_output(index, c.with_rank(c.input(index + 1), rank))


# Connectionist temporal classification


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
