"""Attention mechanisms of Bahdanau et al. 2014 and Luong et al. 2015, and a cell wrapper that uses them.

Next to read: `decoding.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aexec import nn, ops
from aexec.client.building import constant, name_scope, zeros
from aexec.compat.v1.functions.array_ops import sequence_mask
from aexec.compat.v1.networks.layer_objects import function_layer
from aexec.compat.v1.networks.rnn_cell import RNNCell
from aexec.control_flow.structure import leaves_of
from aexec.control_flow.tensor_array import TensorArray
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.initializers import Constant, Ones, Zeros
from aexec.variables.variable_scope import get_variable, variable_scope

__all__ = [
    "AttentionMechanism",
    "AttentionWrapper",
    "AttentionWrapperState",
    "BahdanauAttention",
    "LuongAttention",
    "hardmax",
]


def hardmax(logits: Any, name: str | None = None) -> Tensor:
    """The one-hot encoding of the largest element of the last axis; shape and dtype of `logits`."""
    with name_scope(name or "Hardmax"):
        x = convert_to_tensor(logits)
        one, nothing = (convert_to_tensor(value, x.dtype.base) for value in (1, 0))
        return ops.one_hot(ops.arg_max(x, -1), ops.shape(x)[-1], one, nothing)


class AttentionMechanism:
    """The base of mechanisms: maps a query [batch, units] to alignments, the weights [batch, time] of a memory.

    A subclass overrides `_score`.

    Args:
        query_layer: layer applied to queries, or None.
        memory: [batch, time, size], floating.  Time steps beyond an example's length are set to 0.
        probability_fn: turns scores [batch, time] into alignments; softmax by default.
        memory_sequence_length: the length of each example, [batch], an integer; None if all have the full length.
        memory_layer: layer that turns the memory into keys, or None.
        score_mask_value: score of time steps beyond an example's length; minus infinity by default.

    Attributes:
        values: the masked memory, [batch, time, size].
        keys: the output of the memory layer, [batch, time, units].
    """

    def __init__(
        self,
        query_layer: Any,
        memory: Any,
        probability_fn: Callable[[Any], Any] | None,
        memory_sequence_length: Any = None,
        memory_layer: Any = None,
        score_mask_value: Any = None,
        name: str | None = None,
    ) -> None:
        self.query_layer = query_layer
        self.memory_layer = memory_layer
        self._probability_fn = probability_fn or nn.softmax
        self._lengths = None if memory_sequence_length is None else convert_to_tensor(memory_sequence_length)
        self._mask_value = float("-inf") if score_mask_value is None else score_mask_value
        with name_scope(name or "AttentionMechanism"):
            values = convert_to_tensor(memory, name="memory")
            if self._lengths is not None:
                within = sequence_mask(self._lengths, ops.shape(values)[1], values.dtype.base)
                rank = values.static_shape.rank or 3
                sizes = [*leaves_of(ops.unpack(ops.shape(within), num=2)), *[1] * (rank - 2)]
                values = values * ops.reshape(within, ops.pack(sizes))
            self.values = values
            self.keys: Tensor = values if memory_layer is None else memory_layer(values)
        self.batch_size = ops.shape(self.keys)[0]

    @property
    def alignments_size(self) -> Any:
        """The number of time steps of the memory: an int if it is known, else a scalar int32 tensor."""
        known = list(self.keys.static_shape)[1]
        return ops.shape(self.keys)[1] if known is None else known

    state_size = alignments_size

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Tensor:
        """Zeros, [batch, time]."""
        return zeros(ops.pack([batch_size, self.alignments_size]), dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Tensor:
        """The state before the first step: the initial alignments."""
        return self.initial_alignments(batch_size, dtype)

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        """Return the alignments, [batch, time], and the next state, which are the same tensor."""
        alignments = self._probabilities(self._score(query))
        return alignments, alignments

    def _score(self, query: Any) -> Tensor:
        raise NotImplementedError

    def _probabilities(self, score: Tensor) -> Tensor:
        if self._lengths is not None:
            within = sequence_mask(self._lengths, ops.shape(score)[1])
            score = ops.select_v2(within, score, convert_to_tensor(self._mask_value, score.dtype.base))
        found: Tensor = self._probability_fn(score)
        return found


def _dense(units: int, name: str, dtype: Any) -> Any:
    layer: Any = function_layer("Dense")
    return layer(units, name=name, use_bias=False, dtype=dtype or dtypes.float32)


class LuongAttention(AttentionMechanism):
    """`tf.contrib.seq2seq.LuongAttention`: scores are dot products of query and keys.

    Args:
        num_units: depth of the keys; queries must have the same depth.
        scale: multiply the scores by the variable `attention_g`.

    Other arguments are those of `AttentionMechanism`.

    Raises:
        ValueError: a query has another depth.
        UnimplementedError: `custom_key_value_fn` is given.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Callable[[Any], Any] | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "LuongAttention",
    ) -> None:
        _refuse_functions(custom_key_value_fn)
        memory_layer = _dense(num_units, "memory_layer", dtype)
        super().__init__(None, memory, probability_fn, memory_sequence_length, memory_layer, score_mask_value, name)
        self._num_units = num_units
        self._scale = scale

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        with variable_scope(None, "luong_attention"):
            return super().__call__(query, state)

    def _score(self, query: Any) -> Tensor:
        depth = list(query.static_shape)[-1]
        if depth != self._num_units:
            raise errors.InvalidValueError(
                f"Incompatible or unknown inner dimensions between query and keys.  Query ({query.name}) has units: "
                f"{depth}.  Keys ({self.keys.name}) have units: {self._num_units}.  Perhaps you need to set num_units "
                "to the keys' dimension?"
            )
        product = ops.batch_mat_mul_v2(ops.expand_dims(query, 1), self.keys, adj_y=True)
        score = ops.squeeze(product, squeeze_dims=[1])
        return score * get_variable("attention_g", [], query.dtype.base, Ones()) if self._scale else score


class BahdanauAttention(AttentionMechanism):
    """`tf.contrib.seq2seq.BahdanauAttention`: scores are v · tanh(keys + query layer of the query).

    v is the variable `attention_v`.  With `normalize`, v is scaled to the learned length `attention_g`, and the
    variable `attention_b` is added inside tanh.

    Args:
        num_units: depth of the keys and of the layer over queries.

    Other arguments are those of `AttentionMechanism`.

    Raises:
        UnimplementedError: `custom_key_value_fn` is given.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Callable[[Any], Any] | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "BahdanauAttention",
    ) -> None:
        _refuse_functions(custom_key_value_fn)
        layers = [_dense(num_units, called, dtype) for called in ("query_layer", "memory_layer")]
        super().__init__(layers[0], memory, probability_fn, memory_sequence_length, layers[1], score_mask_value, name)
        self._num_units = num_units
        self._normalize = normalize

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        with variable_scope(None, "bahdanau_attention"):
            return super().__call__(query, state)

    def _score(self, query: Any) -> Tensor:
        x = ops.expand_dims(self.query_layer(query), 1)
        dtype = x.dtype.base
        v: Any = get_variable("attention_v", [self._num_units], dtype)
        if not self._normalize:
            return ops.sum(v * ops.tanh(self.keys + x), [2])
        g: Any = get_variable("attention_g", [], dtype, Constant(np.sqrt(1.0 / self._num_units)))
        b: Any = get_variable("attention_b", [self._num_units], dtype, Zeros())
        normed = g * v * ops.rsqrt(ops.sum(ops.square(v), [0]))
        return ops.sum(normed * ops.tanh(self.keys + x + b), [2])


def _refuse_functions(custom_key_value_fn: Any) -> None:
    if custom_key_value_fn is not None:
        raise errors.UnsupportedError("custom_key_value_fn is not supported: change the memory itself")


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`.

    Attributes:
        cell_state: state of the wrapped cell.
        attention: the attention vector of the last step, [batch, size].
        time: number of steps so far, an int32 scalar.
        alignments: alignments of the last step, [batch, time]; a tuple if there are several mechanisms.
        alignment_history: a TensorArray of the alignments of all steps, () if it is not kept; or a tuple.
        attention_state: state of the mechanism; or a tuple.
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Return a copy in which the given fields are replaced."""
        return self._replace(**kwargs)


class AttentionWrapper(RNNCell):
    """`tf.contrib.seq2seq.AttentionWrapper`: a cell with attention.

    Each step feeds the inputs and the previous attention to the wrapped cell, queries the mechanism with the cell's
    output, and computes the next attention from the weighted memory.

    Args:
        cell: the wrapped cell.
        attention_mechanism: an `AttentionMechanism`, or a list.
        attention_layer_size: units of a layer over the cell's output and the weighted memory, or a list of sizes, one
            per mechanism.  By default the attention is the weighted memory itself.
        alignment_history: keep the alignments of all steps in the state.
        cell_input_fn: (inputs, attention) → the cell's inputs; by default their concatenation.
        output_attention: True if the output is the attention, False if it is the cell's output.
        initial_cell_state: the cell's state in `zero_state`; by default zeros.
        attention_layer: a layer object, or a list, in place of `attention_layer_size`.

    Raises:
        ValueError: both layers and sizes are given, or their number is not that of the mechanisms.
        UnimplementedError: `attention_fn` is given.
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[[Any, Any], Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
        attention_layer: Any = None,
        attention_fn: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if attention_fn is not None:
            raise errors.UnsupportedError("attention_fn is not supported: subclass AttentionMechanism")
        self._cell = cell
        self._is_multi = isinstance(attention_mechanism, list | tuple)
        self._mechanisms = list(attention_mechanism) if self._is_multi else [attention_mechanism]
        self._layers = _layers_of(len(self._mechanisms), attention_layer_size, attention_layer, dtype)
        if self._layers is None:
            sizes = [list(one.values.static_shape)[-1] for one in self._mechanisms]
        else:
            sizes = [layer.units for layer in self._layers]
        self._attention_size = sum(int(size) for size in sizes)
        self._input_fn = cell_input_fn or (lambda inputs, attention: ops.concat_v2([inputs, attention], -1))
        self._output_attention = output_attention
        self._keeps_history = alignment_history
        self._initial_cell_state = initial_cell_state

    @property
    def output_size(self) -> Any:
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        sizes = self._each([one.alignments_size for one in self._mechanisms])
        return AttentionWrapperState(self._cell.state_size, self._attention_size, [], sizes, (), sizes)

    def _each(self, parts: list[Any]) -> Any:
        """`parts` as a tuple if the wrapper was made with a list of mechanisms, else the only part."""
        return tuple(parts) if self._is_multi else parts[0]

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """The state before the first step: attention and alignments are 0."""
        with name_scope(f"{type(self).__name__}ZeroState"):
            inner = self._initial_cell_state
            if inner is None:
                inner = self._cell.zero_state(batch_size, dtype)
            alignments = [one.initial_alignments(batch_size, dtype) for one in self._mechanisms]
            states = [one.initial_state(batch_size, dtype) for one in self._mechanisms]
            histories: list[Any] = [()] * len(states)
            if self._keeps_history:
                histories = [TensorArray(dtype, 0, dynamic_size=True, clear_after_read=False) for _ in states]
            return AttentionWrapperState(
                cell_state=inner,
                attention=zeros(ops.pack([batch_size, self._attention_size]), dtype),
                time=constant(0, dtypes.int32),
                alignments=self._each(alignments),
                alignment_history=self._each(histories),
                attention_state=self._each(states),
            )

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        if not isinstance(state, AttentionWrapperState):
            raise errors.InvalidTypeError(
                f"Expected state to be instance of AttentionWrapperState. Received type {type(state)} instead."
            )
        outputs, inner = self._cell(self._input_fn(inputs, state.attention), state.cell_state)
        attentions, alignments, states, histories = [], [], [], []
        old_states = state.attention_state if self._is_multi else [state.attention_state]
        old_histories = state.alignment_history if self._is_multi else [state.alignment_history]
        for number, mechanism in enumerate(self._mechanisms):
            found, following = mechanism(outputs, state=old_states[number])
            context = ops.squeeze(ops.batch_mat_mul_v2(ops.expand_dims(found, 1), mechanism.values), squeeze_dims=[1])
            if self._layers is not None:
                context = self._layers[number](ops.concat_v2([outputs, context], 1))
            attentions.append(context)
            alignments.append(found)
            states.append(following)
            histories.append(old_histories[number].write(state.time, found) if self._keeps_history else ())
        attention = attentions[0] if len(attentions) == 1 else ops.concat_v2(attentions, 1)
        after = AttentionWrapperState(
            cell_state=inner,
            attention=attention,
            time=state.time + 1,
            alignments=self._each(alignments),
            alignment_history=self._each(histories),
            attention_state=self._each(states),
        )
        return (attention if self._output_attention else outputs), after


def _layers_of(count: int, sizes: Any, layers: Any, dtype: Any) -> list[Any] | None:
    """Make the list of attention layers, one per mechanism; None if neither sizes nor layers are given.

    Raises:
        ValueError: both are given, or there are not `count` of them.
    """
    if sizes is not None and layers is not None:
        raise errors.InvalidValueError("Only one of attention_layer_size and attention_layer should be set")
    if sizes is None and layers is None:
        return None
    if sizes is not None:
        given = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
        found = [_dense(size, "attention_layer", dtype) for size in given]
    else:
        found = list(layers) if isinstance(layers, list | tuple) else [layers]
    if len(found) != count:
        raise errors.InvalidValueError(
            f"If provided, attention_layer_size must contain exactly one integer per attention_mechanism, saw: "
            f"{len(found)} vs {count}"
        )
    return found
