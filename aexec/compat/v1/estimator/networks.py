"""The two parts of canned estimators: a deep network and a linear model over feature columns.

Each part has its own optimizer, which updates the variables in the part's scope.  Next to read: `canned.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aexec import layers, nn, ops, summary
from aexec.compat.v1.estimator.model_spec import ModeKeys
from aexec.compat.v1.feature_column.inputs import input_layer
from aexec.compat.v1.feature_column.linear import linear_model
from aexec.compat.v1.functions.variables import variable_scope
from aexec.compat.v1.networks.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    RMSPropOptimizer,
)
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import require_graph
from aexec.variables.initializers import glorot_uniform

__all__ = ["Deep", "Part", "Wide"]

_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}


def _made(optimizer: Any, rate: float) -> Any:
    """Make an optimizer.

    Args:
        optimizer: an optimizer, a function that returns one, or a name in `_OPTIMIZERS`.
        rate: learning rate of an optimizer given by name.

    Raises:
        ValueError: the name is unknown, or the object has no `minimize`.
    """
    if isinstance(optimizer, str):
        if optimizer not in _OPTIMIZERS:
            raise errors.InvalidValueError(
                f"Unsupported optimizer name: {optimizer}. Supported names are: {sorted(_OPTIMIZERS)}"
            )
        return _OPTIMIZERS[optimizer](learning_rate=rate)
    found = optimizer() if callable(optimizer) else optimizer
    if not hasattr(found, "minimize"):
        raise errors.InvalidValueError(f"The given object is not an Optimizer instance. Given: {found!r}")
    return found


def _summarise(value: Tensor, name: str) -> None:
    summary.scalar(f"{name}/fraction_of_zero_values", nn.zero_fraction(value))
    summary.histogram(f"{name}/activation", value)


class Part:
    """The base of parts.

    Attributes:
        scope: variable scope that holds all variables of the part, and nothing else.
        optimizer: an optimizer, a function that returns one, or its name.
        rate: learning rate of an optimizer given by name.
    """

    scope: str
    optimizer: Any
    rate: float

    def logits(self, features: Mapping[str, Any], size: int, mode: str) -> Tensor:
        """Compute the part's logits, [batch, size], from features by name."""
        raise NotImplementedError

    def train(self, loss: Tensor, step: Any = None) -> Node:
        """An operation that minimises a loss over the part's variables, and increments `step` if one is given."""
        variables = require_graph().collections.get(GraphKeys.TRAINABLE_VARIABLES, scope=f"{self.scope}/")
        made: Node = _made(self.optimizer, self.rate).minimize(loss, global_step=step, var_list=variables)
        return made


@dataclass(frozen=True)
class Deep(Part):
    """A deep network: fully connected hidden layers on top of an input layer of dense columns.

    Attributes:
        units: number of units of each hidden layer.
        columns: dense columns.
        activation: activation of the hidden layers; None for none.
        dropout: probability in training that a hidden unit is dropped; None for no dropout.
        partitioner: partitioner of the columns' variables.
        batch_norm: True to normalise the output of each hidden layer.
    """

    units: Sequence[int]
    columns: Sequence[Any]
    optimizer: Any
    rate: float
    activation: Callable[[Any], Any] | None
    dropout: float | None
    partitioner: Any
    batch_norm: bool
    scope: str = "dnn"

    def logits(self, features: Mapping[str, Any], size: int, mode: str) -> Tensor:
        with variable_scope(self.scope):
            with variable_scope("input_from_feature_columns", partitioner=self.partitioner):
                net = input_layer(features, self.columns)
            for number, units in enumerate(self.units):
                net = self._hidden(net, units, number, mode == ModeKeys.TRAIN)
            found = layers.dense(net, size, kernel_initializer=glorot_uniform(), name="logits")
        _summarise(found, f"{self.scope}/logits")
        return found

    def _hidden(self, net: Tensor, units: int, number: int, is_training: bool) -> Tensor:
        name = f"hiddenlayer_{number}"
        net = layers.dense(net, units, self.activation, kernel_initializer=glorot_uniform(), name=name)
        if self.dropout is not None and is_training:
            net = layers.dropout(net, self.dropout, training=True)
        if self.batch_norm:
            with variable_scope(name):
                net = layers.batch_normalization(
                    net, momentum=0.999, training=is_training, trainable=is_training, name=f"batchnorm_{number}"
                )
        _summarise(net, f"{self.scope}/{name}")
        return net


@dataclass(frozen=True)
class Wide(Part):
    """A linear model over columns.

    Attributes:
        columns: dense or categorical columns.
        most: upper bound of the learning rate of an optimizer given by name.
        combiner: how the weights of an example's ids are combined: "sum", "mean" or "sqrtn".
        partitioner: partitioner of the variables.
    """

    columns: Sequence[Any]
    optimizer: Any
    most: float
    combiner: str
    partitioner: Any = None
    scope: str = "linear"

    @property
    def rate(self) -> float:  # type: ignore[override]
        """Learning rate of an optimizer given by name: 1 / √columns, at most `most`."""
        return min(self.most, 1.0 / math.sqrt(len(self.columns)))

    def logits(self, features: Mapping[str, Any], size: int, mode: str) -> Tensor:
        variables: dict[Any, Any] = {}
        with variable_scope(self.scope, partitioner=self.partitioner):
            found = linear_model(features, self.columns, size, sparse_combiner=self.combiner, cols_to_vars=variables)
        bias = ops.concat_v2(list(variables.pop("bias")), 0) if len(variables["bias"]) > 1 else variables.pop("bias")[0]
        if size == 1:
            summary.scalar("bias", bias[0])
        else:
            summary.histogram("bias", bias)
        weights = [ops.reshape(part, [-1]) for parts in variables.values() for part in parts]
        if weights:
            joined = ops.concat_v2(weights, 0) if len(weights) > 1 else weights[0]
            summary.scalar("fraction_of_zero_weights", nn.zero_fraction(joined))
        return found
