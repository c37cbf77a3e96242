"""Encoders and decoders over sequences of ids, which are looked up in embedding variables.

Next to read: `attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aexec import nn, ops
from aexec.compat.v1.contrib.legacy_seq2seq.plain import rnn_decoder, tied_rnn_seq2seq
from aexec.compat.v1.contrib.rnn import EmbeddingWrapper, OutputProjectionWrapper
from aexec.compat.v1.networks.cell_copies import unbuilt_copy
from aexec.control_flow.cond import cond
from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.variable_scope import get_variable, get_variable_scope, variable_scope

__all__ = [
    "Decoded",
    "check_projection",
    "decoded",
    "embedding_rnn_decoder",
    "embedding_rnn_seq2seq",
    "embedding_tied_rnn_seq2seq",
    "next_embedding",
    "one2many_rnn_seq2seq",
]

# The outputs of each step, and the final state.
Decoded = tuple[list[Tensor], Any]


def next_embedding(table: Any, output_projection: Any, updates: bool) -> Callable[[Any, int], Tensor]:
    """Make the loop function of greedy decoding: it maps an output to the embedding of its argmax.

    Args:
        table: the embedding variable.
        output_projection: (weights, biases) that turn an output into logits; None if outputs are logits.
        updates: whether gradients flow to the table through these embeddings.
    """

    def row(before: Any, _: int) -> Tensor:
        logits = before if output_projection is None else nn.xw_plus_b(before, *output_projection)
        found = nn.embedding_lookup(table, ops.arg_max(logits, 1))
        return found if updates else ops.stop_gradient(found)

    return row


def check_projection(output_projection: Any, num_symbols: int, dtype: Any) -> None:
    """Raise ValueError unless a projection has weights [any, num_symbols] and biases [num_symbols], or is None."""
    if output_projection is None:
        return
    sizes: list[list[int | None]] = [[None, num_symbols], [num_symbols]]
    for given, wanted in zip(output_projection, sizes, strict=True):
        shape = convert_to_tensor(given, dtype).static_shape
        if not shape.is_compatible_with(PartialTensorShape(wanted)):
            raise errors.InvalidValueError(f"output_projection has a part {shape}, and needs {wanted}")


def decoded(feed_previous: Any, decode: Callable[[bool, bool], Decoded]) -> Decoded:
    """Build a decoder, or a choice between two if `feed_previous` is only known in a run.

    Args:
        feed_previous: a bool, or a scalar bool tensor.
        decode: builds a decoder, given whether it feeds back its outputs, and whether gradients flow to the embedding
            through these.
    """
    if isinstance(feed_previous, bool):
        return decode(feed_previous, True)

    def branch(feeds: bool) -> Decoded:
        with variable_scope(get_variable_scope(), reuse=None if feeds else True):
            return decode(feeds, False)

    found: Decoded = cond(feed_previous, lambda: branch(True), lambda: branch(False))
    return found


def embedding_rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: Any = None,
) -> Decoded:
    """`tf.contrib.legacy_seq2seq.embedding_rnn_decoder`: run a cell over embedded ids.

    Args:
        decoder_inputs: ids, [batch] per step, an integer.
        initial_state: in the structure of the cell's state.
        num_symbols, embedding_size: shape of the variable `embedding`.
        output_projection: (weights, biases) that turn an output into logits; used only by `feed_previous`.
        feed_previous: replace all inputs except the first by the argmax of the previous output.
        update_embedding_for_previous: whether gradients flow to the embeddings of these inputs.

    Returns:
        The cell's outputs, [batch, output_size] per step, and the final state.

    Raises:
        ValueError: the projection has other sizes.
    """
    with variable_scope(scope or "embedding_rnn_decoder") as opened:
        check_projection(output_projection, num_symbols, opened.dtype)
        table: Any = get_variable("embedding", [num_symbols, embedding_size])
        loop = next_embedding(table, output_projection, update_embedding_for_previous) if feed_previous else None
        return rnn_decoder((nn.embedding_lookup(table, ids) for ids in decoder_inputs), initial_state, cell, loop)


def embedding_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> Decoded:
    """`tf.contrib.legacy_seq2seq.embedding_rnn_seq2seq`: encode ids, and decode from the encoder's final state.

    The encoder is a copy of the cell with its own variables.

    Args:
        encoder_inputs, decoder_inputs: ids, [batch] per step, an integer.
        output_projection: as in `embedding_rnn_decoder`; without it a layer turns the cell's outputs into logits.
        feed_previous: a bool; or a scalar bool tensor, which chooses between two decoders with the same variables.
        dtype: dtype of states and variables; by default that of the variable scope.

    Returns:
        Logits, [batch, num_decoder_symbols] per step, or the cell's outputs with a projection; and the final state.
    """
    with variable_scope(scope or "embedding_rnn_seq2seq", dtype=dtype) as opened:
        reader = EmbeddingWrapper(unbuilt_copy(cell), num_encoder_symbols, embedding_size)
        _, state = nn.static_rnn(reader, encoder_inputs, dtype=opened.dtype)
        writer = cell if output_projection is not None else OutputProjectionWrapper(cell, num_decoder_symbols)

        def decode(feeds: bool, updates: bool) -> Decoded:
            return embedding_rnn_decoder(
                decoder_inputs, state, writer, num_decoder_symbols, embedding_size, output_projection, feeds, updates
            )

        return decoded(feed_previous, decode)


def embedding_tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_decoder_symbols: int | None = None,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> Decoded:
    """`tf.contrib.legacy_seq2seq.embedding_tied_rnn_seq2seq`: encode and decode with the same cell and embedding.

    Args:
        num_decoder_symbols: number of logits; by default `num_symbols`.

    Other arguments, and the result, are those of `embedding_rnn_seq2seq`.

    Raises:
        ValueError: the projection has other sizes.
    """
    with variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype) as opened:
        check_projection(output_projection, num_symbols, opened.dtype)
        table: Any = get_variable("embedding", [num_symbols, embedding_size])
        reads, writes = (
            [nn.embedding_lookup(table, ids) for ids in inputs] for inputs in (encoder_inputs, decoder_inputs)
        )
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_symbols if num_decoder_symbols is None else num_decoder_symbols)

        def decode(feeds: bool, updates: bool) -> Decoded:
            loop = next_embedding(table, output_projection, updates) if feeds else None
            return tied_rnn_seq2seq(reads, writes, cell, loop, opened.dtype)

        return decoded(feed_previous, decode)


def one2many_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs_dict: Mapping[str, Sequence[Any]],
    enc_cell: Any,
    dec_cells_dict: Mapping[str, Any],
    num_encoder_symbols: int,
    num_decoder_symbols_dict: Mapping[str, int],
    embedding_size: int,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> tuple[dict[str, list[Tensor]], dict[str, Any]]:
    """`tf.contrib.legacy_seq2seq.one2many_rnn_seq2seq`: encode ids, and decode with several decoders.

    Each decoder starts from the encoder's final state, and has its variables in the scope `one2many_decoder_NAME`.

    Args:
        enc_cell: the encoder's cell.
        decoder_inputs_dict, dec_cells_dict, num_decoder_symbols_dict: name of a decoder → its argument.

    Other arguments are those of `embedding_rnn_seq2seq`.

    Returns:
        The logits and the final states of the decoders, two dicts by name.
    """
    outputs, states = {}, {}
    with variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype) as opened:
        reader = EmbeddingWrapper(enc_cell, num_encoder_symbols, embedding_size)
        _, state = nn.static_rnn(reader, encoder_inputs, dtype=opened.dtype)
        for name, inputs in decoder_inputs_dict.items():
            symbols = num_decoder_symbols_dict[name]
            writer = OutputProjectionWrapper(dec_cells_dict[name], symbols)

            def decode(
                feeds: bool, updates: bool, inputs: Any = inputs, writer: Any = writer, symbols: int = symbols
            ) -> Decoded:
                return embedding_rnn_decoder(
                    inputs,
                    state,
                    writer,
                    symbols,
                    embedding_size,
                    feed_previous=feeds,
                    update_embedding_for_previous=updates,
                )

            with variable_scope(f"one2many_decoder_{name}"):
                outputs[name], states[name] = decoded(feed_previous, decode)
    return outputs, states
