"""Recurrent networks that TensorFlow and aexec build in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES", "X", "weights"]

_rng = np.random.default_rng(7)
X = _rng.standard_normal((3, 4, 2)).astype(np.float32)
LENGTHS = np.array([4, 1, 2], np.int32)


def weights(index: int, shape: tuple[int, ...]) -> np.ndarray:
    """The value of a network's variable, the how-manieth of its graph it is."""
    return np.random.default_rng(index).standard_normal(shape).astype(np.float32) / 2


# (the functions of networks, the classes of cells, X as a tensor) → outputs, state.
Case = Callable[[Any, Any, Any], tuple[Any, Any]]

CASES: dict[str, Case] = {
    "basic": lambda nn, cells, x: nn.dynamic_rnn(cells.BasicRNNCell(3), x, dtype="float32"),
    "gru": lambda nn, cells, x: nn.dynamic_rnn(cells.GRUCell(3), x, LENGTHS, dtype="float32"),
    "basic lstm": lambda nn, cells, x: nn.dynamic_rnn(cells.BasicLSTMCell(3), x, LENGTHS, dtype="float32"),
    "lstm": lambda nn, cells, x: nn.dynamic_rnn(cells.LSTMCell(3, forget_bias=0.5), x, dtype="float32"),
    "peepholes, projected and clipped": lambda nn, cells, x: nn.dynamic_rnn(
        cells.LSTMCell(4, use_peepholes=True, cell_clip=0.6, num_proj=3, proj_clip=0.4), x, dtype="float32"
    ),
    "time first": lambda nn, cells, x: nn.dynamic_rnn(
        cells.GRUCell(2), x, np.array([3, 1, 2, 2]), dtype="float32", time_major=True
    ),
    "layers": lambda nn, cells, x: nn.dynamic_rnn(
        cells.MultiRNNCell([cells.GRUCell(3), cells.ResidualWrapper(cells.BasicLSTMCell(3))]), x, dtype="float32"
    ),
    "both ways": lambda nn, cells, x: nn.bidirectional_dynamic_rnn(
        cells.BasicLSTMCell(2), cells.GRUCell(3), x, LENGTHS, dtype="float32"
    ),
    "both ways, all alike": lambda nn, cells, x: nn.bidirectional_dynamic_rnn(
        cells.BasicRNNCell(2), cells.BasicRNNCell(2), x, dtype="float32"
    ),
    "static": lambda nn, cells, x: nn.static_rnn(
        cells.BasicLSTMCell(3), [x[:, moment] for moment in range(4)], dtype="float32", sequence_length=LENGTHS
    ),
    "from a state": lambda nn, cells, x: nn.static_rnn(cells.GRUCell(2), [x[:, 0], x[:, 1]], x[:, 3]),
    "dropped": lambda nn, cells, x: nn.static_rnn(
        cells.DropoutWrapper(cells.BasicLSTMCell(3), 0.7, 0.6, 0.5, seed=3), [x[:, 0], x[:, 1]], dtype="float32"
    ),
}
