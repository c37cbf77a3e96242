"""Decoders with attention over an encoder's outputs: Vinyals et al. 2014, "Grammar as a Foreign Language".

Next to read: `../seq2seq/attention.py`, the successor of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import nn, ops
from aexec.client.building import zeros
from aexec.compat.v1.contrib.legacy_seq2seq.embeddings import Decoded, check_projection, decoded, next_embedding
from aexec.compat.v1.contrib.rnn import EmbeddingWrapper, OutputProjectionWrapper
from aexec.compat.v1.networks.cell_copies import unbuilt_copy
from aexec.control_flow.structure import leaves_of
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.initializers import Zeros
from aexec.variables.variable_scope import get_variable, get_variable_scope, variable_scope

__all__ = ["attention_decoder", "embedding_attention_decoder", "embedding_attention_seq2seq"]


def _of_type(value: Tensor, dtype: Any) -> Tensor:
    return value if value.dtype.base is dtype else ops.cast(value, DstT=dtype)


def _linear(parts: Sequence[Any], size: int) -> Tensor:
    """Apply a linear layer to the concatenated parts [batch, …]: [batch, size].

    The variables `kernel` and `bias` are in the current scope.
    """
    x = parts[0] if len(parts) == 1 else ops.concat_v2(list(parts), 1)
    depth, dtype = sum(int(list(part.static_shape)[1]) for part in parts), x.dtype.base
    kernel: Any = get_variable("kernel", [depth, size], dtype)
    return ops.bias_add(ops.mat_mul(x, kernel), get_variable("bias", [size], dtype, Zeros(), partitioner=False))


class _Attention:
    """Attention heads over states [batch, time, size].

    Head N has the variables `AttnW_N` and `AttnV_N`, and `kernel` and `bias` in the scope `Attention_N`.

    Raises:
        ValueError: the size of the states is unknown.
    """

    def __init__(self, states: Tensor, num_heads: int, dtype: Any) -> None:
        _, length, size = states.static_shape
        if size is None:
            raise errors.InvalidValueError(f"Shape[2] of attention_states must be known: {states.static_shape}")
        self.size = size
        self._dtype = dtype
        self._length = ops.shape(states)[1] if length is None else length
        self._states = self._reshaped(states, [-1, self._length, 1, size])
        self._heads: list[tuple[Tensor, Any]] = []
        for head in range(num_heads):
            kernel: Any = get_variable(f"AttnW_{head}", [1, 1, size, size], dtype)
            features = nn.conv2d(self._states, kernel, [1, 1, 1, 1], "SAME")
            self._heads.append((features, get_variable(f"AttnV_{head}", [size], dtype)))

    def _reshaped(self, value: Tensor, sizes: list[Any]) -> Tensor:
        known = all(isinstance(size, int) for size in sizes)
        return ops.reshape(value, sizes if known else ops.pack(sizes))

    def __call__(self, query: Any) -> list[Tensor]:
        """The context vector of each head, [batch, size], for a query that is a cell's state."""
        parts = leaves_of(query)
        return [self._context(head, parts) for head in range(len(self._heads))]

    def _context(self, head: int, query: Sequence[Any]) -> Tensor:
        features, v = self._heads[head]
        with variable_scope(f"Attention_{head}"):
            projected = _of_type(_linear(query, self.size), self._dtype)
            y = ops.reshape(projected, [-1, 1, 1, self.size])
            scores = ops.sum(v * ops.tanh(features + y), [2, 3])
            # TensorFlow computes this softmax in float32 whatever the dtype.
            weights = _of_type(nn.softmax(_of_type(scores, dtypes.float32)), self._dtype)
            context = ops.sum(self._reshaped(weights, [-1, self._length, 1, 1]) * self._states, [1, 2])
            return ops.reshape(context, [-1, self.size])

    def zeros(self, batch: Tensor) -> list[Tensor]:
        """The context vectors before the first query: zeros, [batch, size] per head."""
        empty = zeros(ops.pack([batch, self.size]), self._dtype)
        return [ops.reshape(empty, [-1, self.size]) for _ in self._heads]


def attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Decoded:
    """`tf.contrib.legacy_seq2seq.attention_decoder`: run a cell with attention over `attention_states`.

    In each step, the cell's input is a projection of the input and the previous context vectors to the size of the
    input.  The new state is the query for the next context vectors.  The output is a projection of the cell's output
    and these vectors.

    Args:
        decoder_inputs: [batch, size] per step.
        initial_state: in the structure of the cell's state.
        attention_states: [batch, time, size].
        output_size: size of an output; by default the cell's.
        num_heads: number of attention heads, each with its own variables.
        loop_function: (previous output, number of the step) → input; replaces all given inputs except the first.
        dtype: dtype of variables; by default that of the variable scope.
        initial_state_attention: True to query with the initial state; False to start with context vectors of 0.

    Returns:
        The outputs, [batch, output_size] per step, and the final state.

    Raises:
        ValueError: there are no inputs or no heads, or the size of an input or of `attention_states` is unknown.
    """
    if not decoder_inputs:
        raise errors.InvalidValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise errors.InvalidValueError("With less than 1 heads, use a non-attention decoder.")
    size = cell.output_size if output_size is None else output_size
    given = [convert_to_tensor(value) for value in decoder_inputs]
    with variable_scope(scope or "attention_decoder", dtype=dtype) as opened:
        kind = opened.dtype
        attention = _Attention(convert_to_tensor(attention_states), num_heads, kind)
        state, outputs = initial_state, list[Tensor]()
        contexts = attention(state) if initial_state_attention else attention.zeros(ops.shape(given[0])[0])
        for number, value in enumerate(given):
            x = value
            if number > 0:
                get_variable_scope().reuse_variables()
                if loop_function is not None:
                    with variable_scope("loop_function", reuse=True):
                        x = loop_function(outputs[-1], number)
            merged = _linear([_of_type(part, kind) for part in (x, *contexts)], _size_of(x))
            output, state = cell(merged, state)
            with variable_scope(get_variable_scope(), reuse=True if initial_state_attention else None):
                contexts = attention(state)
            with variable_scope("AttnOutputProjection"):
                outputs.append(_linear([_of_type(output, kind), *contexts], size))
    return outputs, state


def _size_of(x: Tensor) -> int:
    if x.static_shape.rank != 2 or (size := list(x.static_shape)[1]) is None:
        raise errors.InvalidValueError(f"Could not infer input size from input: {x.name}")
    return size


def embedding_attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: int | None = None,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Decoded:
    """`tf.contrib.legacy_seq2seq.embedding_attention_decoder`: `attention_decoder` over embedded ids.

    Args:
        decoder_inputs: ids, [batch] per step, an integer.
        num_symbols, embedding_size: shape of the variable `embedding`.
        output_projection: (weights, biases) that turn an output into logits; used only by `feed_previous`.
        feed_previous: replace all inputs except the first by the argmax of the previous output.
        update_embedding_for_previous: whether gradients flow to the embeddings of these inputs.

    Other arguments, and the result, are those of `attention_decoder`.

    Raises:
        ValueError: the projection has other sizes, and for the reasons of `attention_decoder`.
    """
    with variable_scope(scope or "embedding_attention_decoder", dtype=dtype) as opened:
        check_projection(output_projection, num_symbols, opened.dtype)
        table: Any = get_variable("embedding", [num_symbols, embedding_size])
        return attention_decoder(
            [nn.embedding_lookup(table, ids) for ids in decoder_inputs],
            initial_state,
            attention_states,
            cell,
            output_size,
            num_heads,
            next_embedding(table, output_projection, update_embedding_for_previous) if feed_previous else None,
            initial_state_attention=initial_state_attention,
        )


def embedding_attention_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Decoded:
    """`tf.contrib.legacy_seq2seq.embedding_attention_seq2seq`: encode ids, and decode with attention to the encoding.

    The encoder is a copy of the cell with its own variables.

    Args:
        encoder_inputs, decoder_inputs: ids, [batch] per step, an integer.
        output_projection: as in `embedding_attention_decoder`; without it the outputs are logits.
        feed_previous: a bool; or a scalar bool tensor, which chooses between two decoders with the same variables.
        dtype: dtype of states and variables; by default that of the variable scope.
        num_heads, initial_state_attention: as in `attention_decoder`.

    Returns:
        The outputs, [batch, num_decoder_symbols] per step, or [batch, cell.output_size] with a projection; and the
        final state.
    """
    with variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as opened:
        reader = EmbeddingWrapper(unbuilt_copy(cell), num_encoder_symbols, embedding_size)
        read, state = nn.static_rnn(reader, encoder_inputs, dtype=opened.dtype)
        memory = ops.concat_v2([ops.reshape(output, [-1, 1, cell.output_size]) for output in read], 1)
        size, writer = None, cell
        if output_projection is None:
            size, writer = num_decoder_symbols, OutputProjectionWrapper(cell, num_decoder_symbols)

        def decode(feeds: bool, updates: bool) -> Decoded:
            return embedding_attention_decoder(
                decoder_inputs,
                state,
                memory,
                writer,
                num_decoder_symbols,
                embedding_size,
                num_heads,
                size,
                output_projection,
                feeds,
                updates,
                initial_state_attention=initial_state_attention,
            )

        return decoded(feed_previous, decode)
