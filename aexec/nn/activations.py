"""Activations: elementwise functions, and softmax."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "bias_add",
    "crelu",
    "elu",
    "gelu",
    "leaky_relu",
    "log_softmax",
    "relu",
    "relu6",
    "relu_layer",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
    "xw_plus_b",
]

bias_add = ops.bias_add
elu = ops.elu
relu = ops.relu
relu6 = ops.relu6
selu = ops.selu
sigmoid = ops.sigmoid
softplus = ops.softplus
softsign = ops.softsign
tanh = ops.tanh


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """`x` if it is positive, else `alpha * x`."""
    return ops.leaky_relu(features, alpha=alpha, name=name)


def crelu(features: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """`relu(x)` and `relu(-x)`, concatenated along an axis: Shang et al. 2016."""
    with name_scope(name or "CRelu") as scope:
        x = convert_to_tensor(features)
        return ops.relu(ops.concat_v2([x, -x], axis), name=scope)


def swish(features: Any, name: str | None = None) -> Tensor:
    """`x * sigmoid(x)`: Ramachandran et al. 2017."""
    with name_scope(name or "swish"):
        x = convert_to_tensor(features)
        return x * ops.sigmoid(x)


silu = swish


def gelu(features: Any, *, approximate: bool = False, name: str | None = None) -> Tensor:
    """`x` times the standard normal distribution function of `x`: Hendrycks and Gimpel 2016.

    Args:
        approximate: use the approximation by tanh.
    """
    with name_scope(name or "Gelu"):
        x = convert_to_tensor(features)
        if approximate:
            return 0.5 * x * (1.0 + ops.tanh(sqrt(2 / pi) * (x + 0.044715 * ops.pow(x, 3.0))))
        return 0.5 * x * (1.0 + ops.erf(x / sqrt(2.0)))


def softmax(logits: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """Softmax along an axis: positive numbers that add up to one."""
    return _along(ops.softmax, logits, axis, name)


def log_softmax(logits: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """The logarithm of `softmax`, computed directly."""
    return _along(ops.log_softmax, logits, axis, name)


def _along(function: Any, logits: Any, axis: int, name: str | None) -> Tensor:
    """Apply an op that works along the last axis; another axis is swapped with that, and back."""
    values = convert_to_tensor(logits)
    rank = values.static_shape.rank
    if axis == -1 or (rank is not None and axis == rank - 1):
        made: Tensor = function(values, name=name)
        return made
    with name_scope(name or "softmax"):
        last = ops.rank(values) - 1
        order = ops.range(0, last + 1, 1)
        position = axis if axis >= 0 else ops.reshape(last + 1 + axis, [])
        at = convert_to_tensor(position)
        swapped = ops.select_v2(ops.equal(order, at), last, ops.select_v2(ops.equal(order, last), at, order))
        return ops.transpose(function(ops.transpose(values, swapped)), swapped)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """`x @ weights + biases`, with shapes [batch, in], [in, out] and [out]."""
    with name_scope(name or "xw_plus_b") as scope:
        return ops.bias_add(ops.mat_mul(x, weights), biases, name=scope)


def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """`relu(x @ weights + biases)`."""
    with name_scope(name or "relu_layer") as scope:
        return ops.relu(ops.bias_add(ops.mat_mul(x, weights), biases), name=scope)
