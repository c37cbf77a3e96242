"""`tf.nn.rnn_cell`: aexec's recurrent cells with TensorFlow's arguments, and the base of cells that programs define.

Next to read: `aexec/nn/recurrent_cells.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import nn
from aexec.compat.v1.namespace import made_with
from aexec.compat.v1.networks.base_layer import Layer
from aexec.compat.v1.values.shapes import TensorShape
from aexec.graph.nodes.node import Tensor
from aexec.nn.recurrent_cells import WeightedCell
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import get_variable_scope, variable_scope

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
]


class RNNCell(Layer, nn.RNNCell):
    """`tf.nn.rnn_cell.RNNCell`: a program's own cell has a `call(inputs, state)`, or its own `__call__`."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Tensor, Any]:  # type: ignore[override]
        with variable_scope(get_variable_scope() if scope is None else scope) as opened:
            found: tuple[Tensor, Any] = super().__call__(inputs, state, scope=None if scope is None else opened)
        return found


class _OfOurs(RNNCell):
    """A cell of aexec with TensorFlow's name, which programs may subclass."""

    @property
    def weights(self) -> list[Any]:
        """The variables, in the order in which they were made; none before the first call."""
        own = [value for value in vars(self).values() if isinstance(value, Variable)]
        inner = [self.__dict__["_cell"]] if "_cell" in self.__dict__ else self.__dict__.get("_cells", [])
        return own + [weight for cell in inner for weight in cell.weights]

    variables = trainable_weights = trainable_variables = weights

    @property
    def name(self) -> str:
        """Its name."""
        return str(vars(self).get("_name", type(self).__name__))


class _Weighted(_OfOurs):
    """A cell of aexec that has weights: `build` makes them, and `call` computes; a subclass may override both."""

    @property
    def _num_units(self) -> int:
        """The size of its state."""
        return int(vars(self).get("_units", self.output_size))

    def _build(self, depth: int, dtype: Any) -> None:
        self._dtype = dtype
        self.build(TensorShape([None, depth]))

    def build(self, input_shape: Any) -> None:
        """Make the weights."""
        super()._build(int(input_shape[-1]), self._dtype)  # type: ignore[misc]
        self.built = True

    def _step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        found: tuple[Tensor, Any] = self.call(x, state)
        return found

    def call(self, inputs: Any, state: Any) -> Any:
        """Compute one time step."""
        return super()._step(inputs, state)  # type: ignore[misc]


def _cell(ours: type[nn.RNNCell], arguments: str) -> Any:
    base = _Weighted if issubclass(ours, WeightedCell) else _OfOurs
    return made_with(ours, arguments, base, ours, __call__=ours.__call__)


# Weights are shared according to the scope, and have the type of the inputs.
BasicLSTMCell = _cell(nn.BasicLSTMCell, "num_units forget_bias state_is_tuple!True activation reuse= name dtype=")
BasicRNNCell = _cell(nn.BasicRNNCell, "num_units activation reuse= name dtype=")
GRUCell = _cell(nn.GRUCell, "num_units activation reuse= kernel_initializer bias_initializer name dtype=")
LSTMCell = _cell(
    nn.LSTMCell,
    """num_units use_peepholes cell_clip initializer num_proj proj_clip num_unit_shards! num_proj_shards! forget_bias
    state_is_tuple!True activation reuse= name dtype=""",
)
LSTMStateTuple = nn.LSTMStateTuple
MultiRNNCell = _cell(nn.MultiRNNCell, "cells state_is_tuple!True")
DeviceWrapper = _cell(nn.DeviceWrapper, "cell device")
DropoutWrapper = _cell(
    nn.DropoutWrapper,
    """cell input_keep_prob output_keep_prob state_keep_prob variational_recurrent! input_size= dtype= seed
    dropout_state_filter_visitor!""",
)
ResidualWrapper = _cell(nn.ResidualWrapper, "cell residual_fn!")
