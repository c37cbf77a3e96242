"""Decoders that attend to what an encoder read: Vinyals et al. 2014, "Grammar as a Foreign Language".

Next to read: `../seq2seq/attention.py`, which came later.
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
    """The parts side by side, times `kernel`, plus `bias`: variables of the current scope."""
    x = parts[0] if len(parts) == 1 else ops.concat_v2(list(parts), 1)
    depth, dtype = sum(int(list(part.static_shape)[1]) for part in parts), x.dtype.base
    kernel: Any = get_variable("kernel", [depth, size], dtype)
    return ops.bias_add(ops.mat_mul(x, kernel), get_variable("bias", [size], dtype, Zeros(), partitioner=False))


class _Attention:
    """Heads that attend to states, [batch, time, size].

    Variables of each head are `AttnW_N` and `AttnV_N`, and the kernel and bias in the scope `Attention_N`.
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
        """What each head sees, [batch, size], asked by a state of a cell."""
        parts = leaves_of(query)
        return [self._seen(head, parts) for head in range(len(self._heads))]

    def _seen(self, head: int, query: Sequence[Any]) -> Tensor:
        features, v = self._heads[head]
        with variable_scope(f"Attention_{head}"):
            asked = _of_type(_linear(query, self.size), self._dtype)
            y = ops.reshape(asked, [-1, 1, 1, self.size])
            scores = ops.sum(v * ops.tanh(features + y), [2, 3])
            # TensorFlow computes this softmax in single precision, whatever the type.
            weights = _of_type(nn.softmax(_of_type(scores, dtypes.float32)), self._dtype)
            seen = ops.sum(self._reshaped(weights, [-1, self._length, 1, 1]) * self._states, [1, 2])
            return ops.reshape(seen, [-1, self.size])

    def nothing(self, batch: Tensor) -> list[Tensor]:
        """What the heads see before the first question: zeros."""
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
    """Run a cell over inputs, [batch, size] each, and over what it attends to.

    At each time the input and what was seen before are projected to the size of the input; the cell reads that, its
    new state asks what to see next, and the cell's output and what is seen are projected to the output.

    Args:
        initial_state: in the structure of the cell's state.
        attention_states: what it attends to, [batch, time, size].
        output_size: by default the cell's.
        num_heads: how many heads attend, each with its own weights.
        loop_function: (the last output, the number of the step) → the input, in place of all given ones but the first.
        dtype: by default the variable scope's.
        initial_state_attention: ask already by the initial state; else zeros are seen at first.

    Returns:
        The outputs, [batch, output_size] each, and the last state.

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
        seen = attention(state) if initial_state_attention else attention.nothing(ops.shape(given[0])[0])
        for number, value in enumerate(given):
            x = value
            if number > 0:
                get_variable_scope().reuse_variables()
                if loop_function is not None:
                    with variable_scope("loop_function", reuse=True):
                        x = loop_function(outputs[-1], number)
            merged = _linear([_of_type(part, kind) for part in (x, *seen)], _size_of(x))
            output, state = cell(merged, state)
            with variable_scope(get_variable_scope(), reuse=True if initial_state_attention else None):
                seen = attention(state)
            with variable_scope("AttnOutputProjection"):
                outputs.append(_linear([_of_type(output, kind), *seen], size))
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
    """`attention_decoder` over ids, [batch] each, which are rows of the variable `embedding`.

    Args:
        output_projection: weights and biases that make logits of an output; used only to choose the next id.
        feed_previous: all inputs but the first are the ids that the outputs before choose.
        update_embedding_for_previous: whether gradients reach the rows of these ids.

    Raises:
        ValueError: the projection has other sizes; and as `attention_decoder`.
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
    """A copy of a cell reads ids, and the cell attends to its outputs and writes ids.

    Args:
        encoder_inputs, decoder_inputs: ids, [batch] for each time.
        output_projection: as of `embedding_attention_decoder`; without it outputs are logits.
        feed_previous: a bool, or a bool scalar tensor, for which both decoders are built.
        dtype: of states and weights; by default the variable scope's.
        num_heads, initial_state_attention: as of `attention_decoder`.

    Returns:
        The outputs, [batch, num_decoder_symbols] each, or [batch, output_size] if there is a projection; and the last
        state.
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
