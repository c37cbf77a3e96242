"""`tf.layers.Layer`: the base of layers that programs define.

Next to read: `rnn_cell.py`, whose cells are layers, and `layers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aexec.compat.v1.values.tensors import get_default_graph
from aexec.control_flow.structure import leaves_of, pack
from aexec.framework.dtypes import as_dtype, float32
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import VariableScope, get_variable, variable_scope

__all__ = ["Layer"]


def _snake(name: str) -> str:
    parts = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", parts).lower()


class Layer:
    """A layer with its own weights, which the first call makes by `build`; `call` computes.

    The weights are in a variable scope named after the layer, which the first call opens.

    Attributes:
        trainable: whether the weights are trainable.
        built: True once the weights are made.
        input_spec: unused here.
    """

    trainable = True
    built = False

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        self.trainable = trainable
        self.input_spec: Any = None
        self._base_name = name or _snake(type(self).__name__)
        self._dtype = None if dtype is None else as_dtype(dtype)
        self._reuse = kwargs.pop("_reuse", None)
        self._scope: VariableScope | None = None
        scope = kwargs.pop("_scope", None)
        if kwargs:
            raise TypeError(f"Keyword argument not understood: {', '.join(kwargs)}")
        if scope is not None:
            with variable_scope(scope) as self._scope:
                pass
        self._weights: list[Any] = []
        self._losses: list[Tensor] = []
        self._updates: list[Any] = []

    # Overridden by a program's own layer

    def build(self, input_shape: Any) -> None:
        """Make the weights, given the static shape of the inputs."""
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The layer's outputs."""
        return inputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the outputs."""
        raise NotImplementedError

    # Called by it

    def add_weight(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[..., Any] | None = None,
        trainable: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        partitioner: Any = None,
    ) -> Any:
        """A variable of the layer, made by the first call and returned by later ones."""
        made = get_variable(
            name,
            list(shape),
            as_dtype(dtype or self._dtype or float32),
            initializer,
            regularizer=regularizer,
            trainable=self.trainable and trainable is not False,
            constraint=constraint,
            use_resource=use_resource,
            partitioner=partitioner,
        )
        if made not in self._weights:
            self._weights.append(made)
        return made

    add_variable = add_weight

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Add terms to the layer's losses, and to the graph's regularization losses."""
        for loss in leaves_of(losses):
            self._losses.append(loss)
            get_default_graph().collections.add(GraphKeys.REGULARIZATION_LOSSES, loss)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Add operations that must run with each step, also to the graph's update ops."""
        for update in leaves_of(updates):
            self._updates.append(update)
            get_default_graph().collections.add(GraphKeys.UPDATE_OPS, update)

    # Called by users

    def __call__(self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        self._open(scope)
        inputs = pack(inputs, [convert_to_tensor(leaf) for leaf in leaves_of(inputs)])
        reuse = True if self.built or self._reuse is True else self._reuse
        with variable_scope(self._scope, reuse=reuse):
            if not self.built:
                if self._dtype is None:
                    self._dtype = leaves_of(inputs)[0].dtype.base
                shapes = [leaf.shape for leaf in leaves_of(inputs)]
                self.build(shapes[0] if isinstance(inputs, Tensor) else pack(inputs, shapes))
            found = self.call(inputs, *args, **kwargs)
        self.built = True
        return found

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        return self(inputs, *args, **kwargs)

    def _open(self, scope: Any) -> None:
        if self._scope is not None:
            return
        if self._reuse:
            with variable_scope(scope if scope is not None else self._base_name) as self._scope:
                return
        with variable_scope(scope, self._base_name) as self._scope:
            pass

    @property
    def name(self) -> str:
        """Its name."""
        return self._scope.name.rpartition("/")[2] if self._scope else self._base_name

    @property
    def scope_name(self) -> str:
        """The full name of its variable scope.  Raises ValueError before the first call."""
        if self._scope is None:
            raise ValueError(f"No name available for layer scope because the layer '{self.name}' has not been used yet")
        return self._scope.name

    @property
    def graph(self) -> Any:
        """The graph that it is used in."""
        return get_default_graph()

    @property
    def dtype(self) -> Any:
        """The type of its weights; before the first call the requested type."""
        return self._dtype

    @property
    def weights(self) -> list[Any]:
        """All variables, the trainable ones first."""
        return self.trainable_weights + self.non_trainable_weights

    @property
    def trainable_weights(self) -> list[Any]:
        """The weights that training changes."""
        return [weight for weight in self._weights if self.trainable and _is_trainable(weight)]

    @property
    def non_trainable_weights(self) -> list[Any]:
        """The others."""
        return [weight for weight in self._weights if not (self.trainable and _is_trainable(weight))]

    variables = weights
    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights

    @property
    def losses(self) -> list[Tensor]:
        """Its terms of the loss: those of `add_loss`, and its regularizers'."""
        return list(self._losses)

    @property
    def updates(self) -> list[Any]:
        """The operations that must run with each step."""
        return list(self._updates)

    def count_params(self) -> int:
        """The number of elements of all weights."""
        total = 0
        for weight in self.weights:
            count = 1
            for size in weight.static_shape:
                count *= size
            total += count
        return total


def _is_trainable(weight: Any) -> bool:
    return not isinstance(weight, Variable) or weight.trainable
