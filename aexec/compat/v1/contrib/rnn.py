"""`tf.contrib.rnn`: recurrent cells and networks, over `tf.nn.rnn_cell` and `aexec.nn`.

Next to read: `../networks/rnn_cell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from aexec import nn, ops
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.networks.rnn_cell import LSTMStateTuple, RNNCell
from aexec.control_flow.structure import leaves_of
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.variables.initializers import Constant, Zeros
from aexec.variables.variable_scope import get_variable, get_variable_scope, variable_scope

__all__ = [
    "EmbeddingWrapper",
    "GRUBlockCell",
    "GRUBlockCellV2",
    "InputProjectionWrapper",
    "LSTMBlockCell",
    "LayerNormBasicLSTMCell",
    "OutputProjectionWrapper",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
]


class _Wrapping(RNNCell):
    """The base of cells that wrap another cell."""

    def __init__(self, cell: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The zero state of the wrapped cell."""
        return self._cell.zero_state(batch_size, dtype)


class OutputProjectionWrapper(_Wrapping):
    """Projects a cell's outputs to a size, by variables `kernel` and `bias`."""

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None) -> None:
        super().__init__(cell, _reuse=reuse)
        self._size = output_size
        self._activation = activation

    @property
    def output_size(self) -> Any:
        return self._size

    def call(self, inputs: Any, state: Any) -> Any:
        outputs, after = self._cell(inputs, state)
        dtype = outputs.dtype.base
        kernel: Any = get_variable("kernel", [int(outputs.static_shape[1]), self._size], dtype)
        made = ops.bias_add(ops.mat_mul(outputs, kernel), get_variable("bias", [self._size], dtype, Zeros()))
        return (made if self._activation is None else self._activation(made)), after


class InputProjectionWrapper(_Wrapping):
    """Projects a cell's inputs to a size, by variables `kernel` and `bias`."""

    def __init__(
        self, cell: Any, num_proj: int, activation: Any = None, input_size: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(cell, _reuse=reuse)
        self._size = num_proj
        self._activation = activation

    def call(self, inputs: Any, state: Any) -> Any:
        dtype = inputs.dtype.base
        kernel: Any = get_variable("kernel", [int(inputs.static_shape[1]), self._size], dtype)
        made = ops.bias_add(ops.mat_mul(inputs, kernel), get_variable("bias", [self._size], dtype, Zeros()))
        return self._cell(made if self._activation is None else self._activation(made), state)


class EmbeddingWrapper(_Wrapping):
    """Wraps a cell so that its inputs are ids, [batch] or [batch, 1], looked up in the variable `embedding`.

    Args:
        initializer: initializer of `embedding`; by default that of the variable scope, else uniform with variance 1.

    Raises:
        ValueError: a size is not positive.
    """

    def __init__(
        self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(cell, _reuse=reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise errors.InvalidValueError(
                f"Both embedding_classes and embedding_size must be > 0: {embedding_classes}, {embedding_size}."
            )
        self._shape = [embedding_classes, embedding_size]
        self._first = initializer

    def call(self, inputs: Any, state: Any) -> Any:
        from aexec.compat.v1.networks.initializers import random_uniform_initializer

        first = self._first or get_variable_scope().initializer or random_uniform_initializer(-(3.0**0.5), 3.0**0.5)
        table: Any = get_variable("embedding", self._shape, leaves_of(state)[0].dtype.base, first)
        return self._cell(nn.embedding_lookup(table, ops.reshape(inputs, [-1])), state)


class LSTMBlockCell(RNNCell):
    """An LSTM whose weights are those of TensorFlow's op `LSTMBlockCell`.

    Variables are `kernel` [inputs + units, 4 × units], for the input gate, the new values, the forget gate and the
    output gate, and `bias`; with peepholes `w_i_diag`, `w_f_diag` and `w_o_diag`.

    Args:
        cell_clip: bounds the cell state; None for no bound.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: Any = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = cell_clip
        self._use_peephole = use_peephole

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> Any:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        size = int(input_shape[1])
        self._kernel = self.add_weight("kernel", [size + self._num_units, 4 * self._num_units])
        self._bias = self.add_weight("bias", [4 * self._num_units], initializer=Zeros())
        if self._use_peephole:
            self._diagonals = [self.add_weight(f"w_{gate}_diag", [self._num_units]) for gate in "ifo"]
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        if len(state) != 2:
            raise errors.InvalidValueError("Expecting state to be a tuple with length 2.")
        c, h = state
        gates = ops.mat_mul(ops.concat_v2([inputs, h], 1), self._kernel)
        i, j, f, o = ops.split(1, ops.bias_add(gates, self._bias), num_split=4)
        if self._use_peephole:
            w_i, w_f, w_o = self._diagonals
            i, f = i + c * w_i, f + c * w_f
        after = ops.sigmoid(f + self._forget_bias) * c + ops.sigmoid(i) * ops.tanh(j)
        if self._cell_clip is not None and self._cell_clip > 0:
            # Like TensorFlow's op, the gradient ignores the clipping of the state.
            bounded = ops.clip_by_value(after, -self._cell_clip, self._cell_clip)
            after = after + ops.stop_gradient(bounded - after)
        output = ops.sigmoid(o + after * w_o if self._use_peephole else o) * ops.tanh(after)
        return output, LSTMStateTuple(after, output)


class GRUBlockCellV2(RNNCell):
    """A GRU whose weights are those of TensorFlow's op `GRUBlockCell`; its state is its output.

    Variables are `gates/kernel`, `gates/bias` (initially 1), `candidate/kernel` and `candidate/bias`.
    """

    _names: ClassVar = "gates/kernel gates/bias candidate/kernel candidate/bias".split()

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: Any = None,
        name: str = "gru_cell",
        dtype: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        size = cell_size if num_units is None else num_units
        if size is None:
            raise errors.InvalidValueError("num_units must be given")
        self._cell_size = size

    @property
    def state_size(self) -> Any:
        return self._cell_size

    @property
    def output_size(self) -> Any:
        return self._cell_size

    def build(self, input_shape: Any) -> None:
        both, units = int(input_shape[1]) + self._cell_size, self._cell_size
        w_gates, b_gates, w_new, b_new = self._names
        self._gates = (
            self.add_weight(w_gates, [both, 2 * units]),
            self.add_weight(b_gates, [2 * units], initializer=Constant(1.0)),
        )
        self._candidate = (
            self.add_weight(w_new, [both, units]),
            self.add_weight(b_new, [units], initializer=Zeros()),
        )
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        (w_ru, b_ru), (w_c, b_c) = self._gates, self._candidate
        gates = ops.mat_mul(ops.concat_v2([inputs, state], 1), w_ru)
        r, u = ops.split(1, ops.sigmoid(ops.bias_add(gates, b_ru)), num_split=2)
        new = ops.mat_mul(ops.concat_v2([inputs, r * state], 1), w_c)
        after = u * state + (1.0 - u) * ops.tanh(ops.bias_add(new, b_c))
        return after, after


class GRUBlockCell(GRUBlockCellV2):
    """`GRUBlockCellV2`, whose variables are `gates/w_ru`, `gates/b_ru`, `candidate/w_c` and `candidate/b_c`."""

    _names: ClassVar = "gates/w_ru gates/b_ru candidate/w_c candidate/b_c".split()


class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM with layer normalization (Ba et al. 2016) and recurrent dropout (Semeniuta et al. 2016).

    Variables are `kernel`, `bias` if not normalised, and `gamma` and `beta` in the scopes `input`, `transform`,
    `forget`, `output` and `state`.

    Args:
        norm_gain, norm_shift: initial values of `gamma` and `beta`.
        dropout_keep_prob: probability of keeping an element of the candidate values.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Any = ops.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._activation = activation
        self._layer_norm = layer_norm
        self._first = norm_gain, norm_shift
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> Any:
        return self._num_units

    def _norm(self, x: Any, scope: str) -> Tensor:
        size, dtype = [self._num_units], x.dtype.base
        with variable_scope(scope):
            gamma: Any = get_variable("gamma", size, dtype, Constant(self._first[0]))
            beta: Any = get_variable("beta", size, dtype, Constant(self._first[1]))
        return nn.layer_norm(x, gamma, beta, epsilon=1e-12)

    def call(self, inputs: Any, state: Any) -> Any:
        c, h = state
        x = ops.concat_v2([inputs, h], 1)
        dtype = x.dtype.base
        gates = ops.mat_mul(x, get_variable("kernel", [int(x.static_shape[-1]), 4 * self._num_units], dtype))
        if not self._layer_norm:
            gates = ops.bias_add(gates, get_variable("bias", [4 * self._num_units], dtype, Zeros()))
        i, j, f, o = ops.split(1, gates, num_split=4)
        if self._layer_norm:
            parts = zip((i, j, f, o), ("input", "transform", "forget", "output"), strict=True)
            i, j, f, o = (self._norm(value, scope) for value, scope in parts)
        new = self._activation(j)
        if isinstance(self._keep_prob, Tensor) or self._keep_prob < 1:
            new = nn.dropout(new, 1 - self._keep_prob, seed=self._seed)
        after = c * ops.sigmoid(f + self._forget_bias) + ops.sigmoid(i) * new
        if self._layer_norm:
            after = self._norm(after, "state")
        output = self._activation(after) * ops.sigmoid(o)
        return output, LSTMStateTuple(after, output)


def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Sequence[Any],
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Tensor], tuple[Any, ...], tuple[Any, ...]]:
    """Layers of `tf.nn.static_bidirectional_rnn`.  Each layer takes the outputs of the one below.

    Returns:
        The outputs, the last states of the forward cells, and those of the backward ones.
    """
    pairs = _checked(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states: list[tuple[Any, Any]] = []
    layer: Any = list(inputs)
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (forward, backward, first_fw, first_bw) in enumerate(pairs):
            with variable_scope(f"cell_{number}"):
                layer, after_fw, after_bw = nn.static_bidirectional_rnn(
                    forward, backward, layer, first_fw, first_bw, dtype, sequence_length
                )
            states.append((after_fw, after_bw))
    return layer, tuple(fw for fw, _ in states), tuple(bw for _, bw in states)


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Tensor, tuple[Any, ...], tuple[Any, ...]]:
    """Layers of `tf.nn.bidirectional_dynamic_rnn`.  Each layer takes both outputs of the one below, side by side.

    Returns:
        The outputs, the last states of the forward cells, and those of the backward ones.
    """
    pairs = _checked(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states: list[tuple[Any, Any]] = []
    layer = inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (forward, backward, first_fw, first_bw) in enumerate(pairs):
            with variable_scope(f"cell_{number}"):
                outputs, after = nn.bidirectional_dynamic_rnn(
                    forward,
                    backward,
                    layer,
                    sequence_length,
                    first_fw,
                    first_bw,
                    dtype,
                    parallel_iterations or 32,
                    time_major=time_major,
                )
            layer = ops.concat_v2(list(outputs), 2)
            states.append(after)
    return layer, tuple(fw for fw, _ in states), tuple(bw for _, bw in states)


def _checked(forward: Any, backward: Any, first_fw: Any, first_bw: Any) -> list[tuple[Any, Any, Any, Any]]:
    """Check the arguments of a stack; return the cells and initial states of each layer."""
    for given, what in ((forward, "cells_fw"), (backward, "cells_bw")):
        if not isinstance(given, list) or not given:
            raise errors.InvalidValueError(f"{what} must be a list of cells (one per layer).")
    if len(forward) != len(backward):
        raise errors.InvalidValueError("Forward and Backward cells must have the same depth.")
    nothing = [None] * len(forward)
    firsts = (list(nothing if first is None else first) for first in (first_fw, first_bw))
    return list(zip(forward, backward, *firsts, strict=True))


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"networks.rnn_cell:{name}"
            for name in """BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple
            MultiRNNCell RNNCell ResidualWrapper""".split()
        },
        **{
            name: f"contrib.convolutional_cells:{name}"
            for name in "Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell".split()
        },
        "static_bidirectional_rnn": "networks.nn:static_bidirectional_rnn",
        "static_rnn": "networks.nn:static_rnn",
        "static_state_saving_rnn": "networks.nn:static_state_saving_rnn",
    },
    {
        "AttentionCellWrapper": "use tf.contrib.seq2seq.AttentionWrapper with BahdanauAttention",
        **dict.fromkeys(
            """BidirectionalGridLSTMCell CoupledInputForgetGateLSTMCell GLSTMCell GridLSTMCell IndRNNCell IndyGRUCell
            IndyLSTMCell IntersectionRNNCell NASCell PhasedLSTMCell SRUCell TimeFreqLSTMCell TimeReversedFusedRNN
            UGRNNCell WeightNormLSTMCell""".split(),
            "write a tf.nn.rnn_cell.RNNCell with its formula in `call`",
        ),
        **dict.fromkeys(
            "LSTMBlockFusedCell LSTMBlockWrapper FusedRNNCell FusedRNNCellAdaptor".split(),
            "use tf.contrib.rnn.LSTMBlockCell with tf.nn.dynamic_rnn",
        ),
    },
)
