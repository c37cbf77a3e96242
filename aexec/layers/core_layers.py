"""Dense layers, dropout, and flattening.

Next to read: `convolutional_layers.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.graph.nodes.node import Tensor
from aexec.layers.layer import Activation, as_inputs, chosen, known_size, layer_scope, with_activation
from aexec.variables.initializers import Initializer, Zeros
from aexec.variables.regularizers import Regularizer
from aexec.variables.variable_scope import get_variable
from aexec.variables.variable_store import Reuse

__all__ = ["dense", "dropout", "flatten"]

_ZEROS = Zeros()


def dense(
    inputs: Any,
    units: int,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Initializer | None = None,
    bias_initializer: Initializer | None = _ZEROS,
    kernel_regularizer: Regularizer | None = None,
    bias_regularizer: Regularizer | None = None,
    activity_regularizer: Regularizer | None = None,
    kernel_constraint: Activation | None = None,
    bias_constraint: Activation | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Reuse = None,
) -> Tensor:
    """`activation(inputs @ kernel + bias)`, with `kernel` [size, units] and `bias` [units].

    Args:
        inputs: [batch, …, size], whose size must be known.
        kernel_initializer: by default the variable scope's, or `glorot_uniform`.
        activity_regularizer: of the outputs; its result is divided by the batch size.
        name: of the variable scope; by default `dense`, `dense_1`, ….
        reuse: share the weights of a layer of that name.

    Returns:
        [batch, …, units].

    Raises:
        InvalidArgumentError: the size is unknown; and what `get_variable` raises.
    """
    with layer_scope(name, "dense", reuse):
        x = as_inputs(inputs)
        size, dtype = known_size(x, -1, "the last dimension of the inputs"), x.dtype.base
        kernel = get_variable(
            "kernel",
            [size, units],
            dtype,
            kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = None
        if use_bias:
            bias = get_variable(
                "bias",
                [units],
                dtype,
                bias_initializer,
                regularizer=bias_regularizer,
                constraint=bias_constraint,
                trainable=trainable,
            )
        outputs = ops.mat_mul(x, kernel) if x.static_shape.rank == 2 else _along_last_axis(x, kernel, size, units)
        if bias is not None:
            outputs = ops.bias_add(outputs, bias)
        return with_activation(outputs, activation, activity_regularizer)


def _along_last_axis(x: Tensor, kernel: Any, size: int, units: int) -> Tensor:
    with name_scope("Tensordot") as scope:
        product = ops.mat_mul(ops.reshape(x, [-1, size]), kernel)
        outer = list(x.static_shape)[:-1]
        # With at most one unknown size the static ones are enough, and need no nodes.
        if sum(known is None for known in outer) <= 1:
            return ops.reshape(product, [-1 if known is None else known for known in [*outer, units]], name=scope)
        return ops.reshape(product, ops.concat_v2([ops.shape(x)[:-1], [units]], 0), name=scope)


def dropout(
    inputs: Any,
    rate: float = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Tensor:
    """`nn.dropout` in training, else the inputs.

    Args:
        training: a bool, or a bool scalar tensor.
    """
    with layer_scope(name, "dropout"):
        x = as_inputs(inputs)
        made: Tensor = chosen(training, lambda: nn.dropout(x, rate, noise_shape, seed), lambda: ops.identity(x))
        return made


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """[batch, …] as [batch, size]; with channels first, each row nevertheless has them last."""
    with layer_scope(name, "flatten"):
        x = as_inputs(inputs)
        rank = x.static_shape.rank
        if data_format == "channels_first" and rank is not None and rank > 2:
            x = ops.transpose(x, [0, *range(2, rank), 1])
        sizes = list(x.static_shape)[1:] if rank else [None]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            return ops.reshape(x, [-1, prod(known)])
        return ops.reshape(x, ops.pack([ops.shape(x)[0], -1]))
