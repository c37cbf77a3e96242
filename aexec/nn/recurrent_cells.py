"""Recurrent cells: they compute outputs and the next state from inputs and a state, with weights of their own.

Cells are objects, since their weights are made by the first call and used again by later ones.  Variables have
TensorFlow's names and order (`basic_lstm_cell/kernel`, `gru_cell/gates/bias`), so that checkpoints of either program
fit the other.
Next to read: `recurrent_networks.py`, which calls a cell for each time step of a sequence.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from aexec import ops
from aexec.client.building import device, name_scope, zeros
from aexec.client.clipping import clip_by_value
from aexec.control_flow.structure import check_same_structure, leaves_of, pack
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.normalization import dropout
from aexec.variables.initializers import Initializer, Ones, Zeros
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import VariableScope, get_variable, variable_scope

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "WeightedCell",
]


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM: its cell state, and its output; both [batch, units]."""

    c: Any
    h: Any


class RNNCell(ABC):
    """A cell: `outputs, state = cell(inputs, state)`.

    Attributes:
        state_size: the size of an example's state, or its shape; a structure of these if the state is one.
        output_size: the same for the outputs.
    """

    state_size: Any
    output_size: Any

    @abstractmethod
    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Tensor, Any]:
        """Compute one time step.

        Args:
            inputs: [batch, size], whose size must be known.
            state: in the structure of `state_size`, [batch, size] each.
            scope: variable scope of the weights, in the first call; by default named after the cell.
        """

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """A state of zeros; `batch_size` is an int or an int scalar tensor."""
        with name_scope(f"{type(self).__name__}ZeroState"):
            sizes = leaves_of(self.state_size)
            return pack(self.state_size, [zeros(_sizes(batch_size, size), dtype) for size in sizes])


def _sizes(batch_size: Any, size: Any) -> Any:
    sizes = [batch_size, *([size] if isinstance(size, int) else map(int, size))]
    return sizes if isinstance(batch_size, int) else ops.pack(sizes)


class WeightedCell(RNNCell):
    """A cell with weights, which its first call makes, in the variable scope of that call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._scope: VariableScope | None = None

    @property
    def variables(self) -> list[Variable]:
        """The weights, in the order in which they were made; none before the first call."""
        return [value for value in vars(self).values() if isinstance(value, Variable)]

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Tensor, Any]:
        x = convert_to_tensor(inputs, name="inputs")
        check_same_structure(self.state_size, state, f"state_size and the state of {self._name}")
        with self._inside(scope) as first:
            if first:
                self._build(_depth(x), x.dtype.base)
            return self._step(x, state)

    @contextmanager
    def _inside(self, scope: str | None) -> Iterator[bool]:
        """Enter the cell's variable scope; yields True the first time."""
        if self._scope is None:
            with variable_scope(scope, self._name) as self._scope:
                yield True
        else:
            with name_scope(self._scope.name.rpartition("/")[2]):
                yield False

    @abstractmethod
    def _build(self, depth: int, dtype: dtypes.DType) -> None:
        """Make the weights for this size of inputs."""

    @abstractmethod
    def _step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]: ...


def _depth(x: Tensor) -> int:
    depth = list(x.static_shape)[-1] if x.static_shape.rank else None
    if depth is None:
        raise errors.InvalidValueError(f"Expected inputs.shape[-1] to be known, saw shape: {x.static_shape}")
    return depth


def _linear(parts: Sequence[Any], kernel: Any, bias: Any) -> Tensor:
    return ops.bias_add(ops.mat_mul(ops.concat_v2(list(parts), 1), kernel), bias)


class BasicRNNCell(WeightedCell):
    """`output = state = tanh([inputs, state] @ kernel + bias)`.

    Args:
        num_units: size of the state and the outputs.
        activation: in place of `tanh`.
    """

    def __init__(
        self, num_units: int, activation: Callable[[Any], Tensor] | None = None, name: str = "basic_rnn_cell"
    ) -> None:
        super().__init__(name)
        self.state_size = self.output_size = num_units
        self._activation = activation or ops.tanh

    def _build(self, depth: int, dtype: dtypes.DType) -> None:
        units = self.output_size
        self._kernel = get_variable("kernel", [depth + units, units], dtype)
        self._bias = get_variable("bias", [units], dtype, Zeros())

    def _step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        output = self._activation(_linear([x, state], self._kernel, self._bias))
        return output, output


class GRUCell(WeightedCell):
    """A gated recurrent unit: Cho et al. 2014.

    Args:
        num_units: size of the state and the outputs.
        activation: of the candidate, in place of `tanh`.
        kernel_initializer, bias_initializer: by default the variable scope's for kernels; for biases 1 for the gates, 0
            for the candidate.
    """

    def __init__(
        self,
        num_units: int,
        activation: Callable[[Any], Tensor] | None = None,
        kernel_initializer: Initializer | None = None,
        bias_initializer: Initializer | None = None,
        name: str = "gru_cell",
    ) -> None:
        super().__init__(name)
        self.state_size = self.output_size = num_units
        self._activation = activation or ops.tanh
        self._initializers = kernel_initializer, bias_initializer

    def _build(self, depth: int, dtype: dtypes.DType) -> None:
        units = self.output_size
        of_kernel, of_bias = self._initializers
        self._gate_kernel = get_variable("gates/kernel", [depth + units, 2 * units], dtype, of_kernel)
        self._gate_bias = get_variable("gates/bias", [2 * units], dtype, of_bias or Ones())
        self._candidate_kernel = get_variable("candidate/kernel", [depth + units, units], dtype, of_kernel)
        self._candidate_bias = get_variable("candidate/bias", [units], dtype, of_bias or Zeros())

    def _step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        gates = ops.sigmoid(_linear([x, state], self._gate_kernel, self._gate_bias))
        reset, update = ops.split(1, gates, num_split=2)
        candidate = self._activation(_linear([x, reset * state], self._candidate_kernel, self._candidate_bias))
        new = update * state + (1.0 - update) * candidate
        return new, new


class LSTMCell(WeightedCell):
    """A long short-term memory: Hochreiter and Schmidhuber 1997; with peepholes and projection, Sak et al. 2014.

    Args:
        num_units: size of the cell's state.
        use_peepholes: the gates also depend on the cell's state.
        cell_clip: the cell's state is clipped to between this and its negative.
        initializer: of kernels and peepholes; by default the variable scope's.
        num_proj: size of the outputs, to which they are projected; by default `num_units`, without a projection.
        proj_clip: as `cell_clip`, for projected outputs.
        forget_bias: added to the forget gate, so that little is forgotten at first.
        activation: in place of `tanh`.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        *,
        forget_bias: float = 1.0,
        activation: Callable[[Any], Tensor] | None = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(name)
        self._units = num_units
        self.output_size = num_units if num_proj is None else num_proj
        self.state_size = LSTMStateTuple(num_units, self.output_size)
        self._clips = cell_clip, proj_clip
        self._initializer = initializer
        self._forget_bias = forget_bias
        self._activation = activation or ops.tanh
        self._has_peepholes, self._is_projected = use_peepholes, num_proj is not None

    def _build(self, depth: int, dtype: dtypes.DType) -> None:
        units, initializer = self._units, self._initializer
        self._kernel = get_variable("kernel", [depth + self.output_size, 4 * units], dtype, initializer)
        self._bias = get_variable("bias", [4 * units], dtype, Zeros())
        if self._has_peepholes:
            self._forget_peephole = get_variable("w_f_diag", [units], dtype, initializer)
            self._input_peephole = get_variable("w_i_diag", [units], dtype, initializer)
            self._output_peephole = get_variable("w_o_diag", [units], dtype, initializer)
        if self._is_projected:
            self._projection = get_variable("projection/kernel", [units, self.output_size], dtype, initializer)

    def _step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        before, hidden = state
        gates = _linear([x, hidden], self._kernel, self._bias)
        enters, new, forgets, leaves = ops.split(1, gates, num_split=4)
        forgets = forgets + self._forget_bias
        if self._has_peepholes:
            forgets = forgets + self._forget_peephole * before
            enters = enters + self._input_peephole * before
        cell_clip, proj_clip = self._clips
        cell = ops.sigmoid(forgets) * before + ops.sigmoid(enters) * self._activation(new)
        if cell_clip is not None:
            cell = clip_by_value(cell, -cell_clip, cell_clip)
        if self._has_peepholes:
            leaves = leaves + self._output_peephole * cell
        output = self._activation(cell) * ops.sigmoid(leaves)
        if self._is_projected:
            output = ops.mat_mul(output, self._projection)
            if proj_clip is not None:
                output = clip_by_value(output, -proj_clip, proj_clip)
        return output, LSTMStateTuple(cell, output)


class BasicLSTMCell(LSTMCell):
    """An `LSTMCell` without peepholes, clipping and projection, whose weights have other names."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        activation: Callable[[Any], Tensor] | None = None,
        name: str = "basic_lstm_cell",
    ) -> None:
        super().__init__(num_units, forget_bias=forget_bias, activation=activation, name=name)


class MultiRNNCell(RNNCell):
    """Stacked cells: the inputs of each are the outputs of the one below; the state is a tuple of theirs.

    Raises:
        InvalidArgumentError: there are no cells, or one is there twice.
    """

    def __init__(self, cells: Sequence[RNNCell]) -> None:
        if not cells:
            raise errors.InvalidValueError("Must specify at least one cell for MultiRNNCell.")
        if len({id(cell) for cell in cells}) < len(cells):
            raise errors.InvalidValueError("the cells of MultiRNNCell share weights: one is there twice")
        self._cells = list(cells)
        self.state_size = tuple(cell.state_size for cell in cells)
        self.output_size = cells[-1].output_size

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Tensor, Any]:
        # Each cell looks at its own: the state of a wrapper may have other parts than its state_size says.
        if not isinstance(state, list | tuple) or len(state) != len(self._cells):
            raise errors.InvalidValueError(
                f"Expected state to be a tuple of length {len(self._cells)}, but received: {state}"
            )
        states = []
        with variable_scope(scope or "multi_rnn_cell"):
            for index, (cell, of_cell) in enumerate(zip(self._cells, state, strict=True)):
                with variable_scope(f"cell_{index}"):
                    inputs, after = cell(inputs, of_cell)
                states.append(after)
        return inputs, tuple(states)

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with name_scope("MultiRNNCellZeroState"):
            return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)


class _Wrapper(RNNCell):
    """A cell that wraps another one and has its state."""

    def __init__(self, cell: RNNCell) -> None:
        self._cell = cell
        self.state_size = cell.state_size
        self.output_size = cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return self._cell.zero_state(batch_size, dtype)


class DropoutWrapper(_Wrapper):
    """A cell with dropout of inputs, of the next state, and of outputs; each call drops other elements.

    Args:
        input_keep_prob, output_keep_prob, state_keep_prob: probability that an element stays; 1 for all.  Of an LSTM's
            state only `h` is dropped.
        seed: determines the seed of each dropout, as in TensorFlow.
    """

    def __init__(
        self,
        cell: RNNCell,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(cell)
        self._keeps = {"input": input_keep_prob, "output": output_keep_prob, "state": state_keep_prob}
        self._seed = seed

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Tensor, Any]:
        output, after = self._cell(self._dropped("input", inputs, 0), state, scope)
        if not _is_one(self._keeps["state"]):
            leaves = [
                leaf if is_memory else self._dropped("state", leaf, index)
                for index, (leaf, is_memory) in enumerate(zip(leaves_of(after), _memories(after), strict=True))
            ]
            after = pack(after, leaves)
        return self._dropped("output", output, 0), after

    def _dropped(self, what: str, value: Any, index: int) -> Tensor:
        keep = self._keeps[what]
        tensor = convert_to_tensor(value)
        return tensor if _is_one(keep) else dropout(tensor, 1.0 - keep, seed=self._seed_of(what, index))

    def _seed_of(self, what: str, index: int) -> int | None:
        if self._seed is None:
            return None
        digest = hashlib.md5(f"{self._seed}{what}_{index}".encode(), usedforsecurity=False).hexdigest()
        return int(digest[:8], 16) & 0x7FFFFFFF


def _is_one(keep: Any) -> bool:
    return isinstance(keep, int | float) and keep == 1


def _memories(state: Any) -> list[bool]:
    """For each leaf of a state, whether it is the cell state of an LSTM, which is not dropped."""
    if isinstance(state, LSTMStateTuple):
        return [True, False]
    if isinstance(state, list | tuple):
        return [found for part in state for found in _memories(part)]
    return [False]


class ResidualWrapper(_Wrapper):
    """A cell to whose outputs its inputs, of the same shape, are added."""

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Tensor, Any]:
        x = convert_to_tensor(inputs)
        output, after = self._cell(x, state, scope)
        return x + output, after


class DeviceWrapper(_Wrapper):
    """A cell whose nodes are placed on a device."""

    def __init__(self, cell: RNNCell, device: str) -> None:
        super().__init__(cell)
        self._device = device

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Tensor, Any]:
        with device(self._device):
            return self._cell(inputs, state, scope)
