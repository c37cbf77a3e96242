"""`tf.contrib.rnn.ConvLSTMCell`: an LSTM whose products are convolutions, for sequences of pictures.

Shi et al., https://arxiv.org/abs/1506.04214, with the names of variables of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.compat.v1.networks.rnn_cell import LSTMStateTuple, RNNCell
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import errors
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.convolutions import convolution
from aexec.variables.initializers import Zeros
from aexec.variables.variable_scope import get_variable

__all__ = ["Conv1DLSTMCell", "Conv2DLSTMCell", "Conv3DLSTMCell", "ConvLSTMCell"]


class ConvLSTMCell(RNNCell):
    """An LSTM with convolutions over one to three dimensions of space.

    Its variables are `kernel` [*kernel_shape, input channels + output channels, 4 × output channels], for the input
    gate, the new values, the forget gate and the output gate, and `biases`.  Inputs are [batch, *input_shape].

    Args:
        conv_ndims: the number of dimensions of space.
        input_shape: the shape of an example's inputs: sizes in space, and channels.
        output_channels: channels of the outputs and of both parts of the state.
        kernel_shape: sizes of the kernel in space.
        use_bias: add `biases`.
        skip_connection: outputs are followed by the inputs, in their channels.
        forget_bias: added to the forget gate.
        initializers: must be None.
        name: the variables' scope.

    Raises:
        ValueError: `input_shape` has not `conv_ndims + 1` sizes.
    """

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Sequence[int],
        output_channels: int,
        kernel_shape: Sequence[int],
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Any = None,
        name: str = "conv_lstm_cell",
    ) -> None:
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise errors.InvalidValueError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        if initializers is not None:
            raise errors.UnsupportedError("ConvLSTMCell: initializers is not supported; set the scope's initializer")
        self._space = list(input_shape[:-1])
        self._channels = output_channels
        self._kernel = list(kernel_shape)
        self._use_bias = use_bias
        self._skips = skip_connection
        self._forget_bias = forget_bias
        self._outputs = output_channels + (input_shape[-1] if skip_connection else 0)

    @property
    def state_size(self) -> Any:
        shape = TensorShape([*self._space, self._channels])
        return LSTMStateTuple(shape, shape)

    @property
    def output_size(self) -> Any:
        return TensorShape([*self._space, self._outputs])

    def call(self, inputs: Any, state: Any) -> Any:
        x = convert_to_tensor(inputs)
        kept, hidden = state
        given, new, forget, shown = ops.split(len(self._space) + 1, self._convolved(x, hidden), num_split=4)
        forgotten = ops.mul(ops.sigmoid(ops.add_v2(forget, self._forget_bias)), kept)
        cell = ops.add_v2(forgotten, ops.mul(ops.sigmoid(given), ops.tanh(new)))
        outputs = ops.mul(ops.tanh(cell), ops.sigmoid(shown))
        if not self._skips:
            return outputs, LSTMStateTuple(cell, outputs)
        return ops.concat_v2([outputs, x], len(self._space) + 1), LSTMStateTuple(cell, outputs)

    def _convolved(self, x: Any, hidden: Any) -> Any:
        """The sums for all gates, [batch, *space, 4 × output channels]."""
        joined = ops.concat_v2([x, hidden], len(self._space) + 1)
        dtype, channels = x.dtype.base, int(joined.static_shape[-1])
        kernel = get_variable("kernel", [*self._kernel, channels, 4 * self._channels], dtype)
        sums = convolution(joined, kernel, padding="SAME")
        if not self._use_bias:
            return sums
        return ops.add_v2(sums, get_variable("biases", [4 * self._channels], dtype, Zeros()))


class Conv1DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` of sequences; `kwargs` are its other arguments."""

    def __init__(self, name: str = "conv_1d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` of pictures; `kwargs` are its other arguments."""

    def __init__(self, name: str = "conv_2d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` of volumes; `kwargs` are its other arguments."""

    def __init__(self, name: str = "conv_3d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(3, name=name, **kwargs)
