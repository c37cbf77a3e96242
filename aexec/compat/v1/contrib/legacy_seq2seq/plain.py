"""A cell that reads a sequence, and one that writes another, each given as a list of tensors.

Next to read: `embeddings.py`, whose sequences are ids.
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
    """Run a cell over inputs, [batch, size] each.

    Args:
        loop_function: (the last output, the number of the step) → the input, in place of all given ones but the first.

    Returns:
        The outputs, and the last state.
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
    """A cell reads one sequence, and a copy of it with its own weights begins at its last state and reads another."""
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
    """A cell reads one sequence, and then another, with the same weights."""
    with variable_scope("combined_tied_rnn_seq2seq"):
        within = scope or "tied_rnn_seq2seq"
        _, state = nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=within)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, within)
