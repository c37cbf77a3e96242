"""Encoder and decoder over sequences that are lists with a tensor per time step.

Next to read: `embeddings.py`, for sequences of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aexec import nn
from aexec.compat.v1.networks.cell_copies import unbuilt_copy
from aexec.graph.nodes.node import Tensor
from aexec.variables.variable_scope import get_variable_scope, variable_scope

__all__ = ["basic_rnn_seq2seq", "rnn_decoder", "tied_rnn_seq2seq"]


def rnn_decoder(
    decoder_inputs: Iterable[Any],
    initial_state: Any,
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    scope: Any = None,
) -> tuple[list[Tensor], Any]:
    """`tf.contrib.legacy_seq2seq.rnn_decoder`: run a cell over inputs.

    Args:
        decoder_inputs: [batch, size] per step.
        initial_state: in the structure of the cell's state.
        loop_function: (previous output, number of the step) → input; replaces all given inputs except the first.

    Returns:
        The outputs, [batch, output_size] per step, and the final state.
    """
    with variable_scope(scope or "rnn_decoder"):
        state, outputs, before = initial_state, [], None
        for number, given in enumerate(decoder_inputs):
            x = given
            if loop_function is not None and before is not None:
                with variable_scope("loop_function", reuse=True):
                    x = loop_function(before, number)
            if number > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(x, state)
            outputs.append(output)
            if loop_function is not None:
                before = output
    return outputs, state


def basic_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any, dtype: Any = "float32", scope: Any = None
) -> tuple[list[Tensor], Any]:
    """`tf.contrib.legacy_seq2seq.basic_rnn_seq2seq`: encode a sequence, and decode from the encoder's final state.

    The encoder is a copy of the cell with its own variables.

    Args:
        encoder_inputs, decoder_inputs: [batch, size] per step.
        dtype: dtype of the encoder's initial state.

    Returns:
        The decoder's outputs, [batch, output_size] per step, and its final state.
    """
    with variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = nn.static_rnn(unbuilt_copy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = "float32",
    scope: Any = None,
) -> tuple[list[Tensor], Any]:
    """`tf.contrib.legacy_seq2seq.tied_rnn_seq2seq`: `basic_rnn_seq2seq` with one cell for both sequences.

    Args:
        loop_function: as in `rnn_decoder`.
    """
    with variable_scope("combined_tied_rnn_seq2seq"):
        within = scope or "tied_rnn_seq2seq"
        _, state = nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=within)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, within)
