"""Shape functions of `rnn_ops.py`."""

from __future__ import annotations

from aexec.framework.shape_functions.shape_inference import Dimension, InferenceContext, Shape


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
    """Each gradient has the shape of its value, inputs 1 to 8."""
    for index, rank in enumerate((3, 2, 2, 2, 1, 1, 1, 1)):
        c.set_output(index, c.with_rank(c.input(index + 1), rank))


def lstm_loop(c: InferenceContext) -> None:
    """The numbers of the steps, how many there were, and the states; if they are kept, those of all steps too."""
    _loop(c, 2, c.input(4))


def gru_loop(c: InferenceContext) -> None:
    """As `lstm_loop`."""
    _loop(c, 1, c.input(3))


def _loop(c: InferenceContext, states: int, h: Shape) -> None:
    state = c.with_rank(h, 2)
    c.set_output(0, c.vector(c.unknown_dim()))
    c.set_output(1, c.scalar())
    for index in range(states):
        c.set_output(2 + index, state)
    c.set_output(2 + states, c.make_shape((c.unknown_dim(), c.dim(state, 0), c.dim(state, 1))))
