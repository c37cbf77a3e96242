"""Code that layers share: the scope of their weights, activations and regularization of outputs.

Next to read: `core_layers.py`, the simplest ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.control_flow.cond import cond
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.graph.tensor_proxy import TensorProxy
from aexec.variables.regularizers import Regularizer
from aexec.variables.variable_scope import VariableScope, variable_scope
from aexec.variables.variable_store import Reuse

__all__ = ["Activation", "as_inputs", "chosen", "known_size", "layer_scope", "one_each", "with_activation"]

Activation = Callable[[Any], Tensor]


@contextmanager
def layer_scope(name: str | None, kind: str, reuse: Reuse = None) -> Iterator[VariableScope]:
    """The variable scope of a layer: of that name, or a new one named after its kind.

    Raises:
        InvalidArgumentError: `reuse` without a name.
    """
    if reuse and name is None:
        raise errors.InvalidValueError("reuse cannot be set without a name for the layer")
    with variable_scope(name, kind, reuse=reuse) as scope:
        yield scope


def with_activation(
    outputs: Tensor, activation: Activation | None, activity_regularizer: Regularizer | None = None
) -> Tensor:
    """Apply the activation to a layer's outputs, and add their regularization loss to the collection of those."""
    found = outputs if activation is None else activation(outputs)
    if activity_regularizer is not None:
        with name_scope("ActivityRegularizer"):
            loss = activity_regularizer(found)
            if loss is not None:
                batch = ops.cast(ops.shape(found)[0], DstT=loss.dtype.base)
                require_graph().collections.add(GraphKeys.REGULARIZATION_LOSSES, loss / batch)
    return found


def chosen(training: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Call one of two functions: decided now if `training` is a bool, else when the graph runs."""
    if isinstance(training, Tensor | TensorProxy):
        return cond(training, yes, no)
    return yes() if training else no()


def known_size(inputs: Tensor, axis: int, what: str) -> int:
    """The size of an axis.  Raises InvalidArgumentError if it is unknown."""
    size = list(inputs.static_shape)[axis] if inputs.static_shape.rank else None
    if size is None:
        raise errors.InvalidValueError(f"{what} must be known to make the weights, got shape {inputs.static_shape}")
    return size


def one_each(value: Any, axes: int, what: str) -> list[int]:
    """A number for each axis of a window.  Raises InvalidArgumentError if `value` has neither one nor that many."""
    listed = [int(value)] * axes if isinstance(value, int | np.integer) else [int(size) for size in value]
    if len(listed) != axes:
        raise errors.InvalidValueError(f"{what} must be one integer or {axes}, got {value!r}")
    return listed


def as_inputs(inputs: Any, rank: int | None = None) -> Tensor:
    """The inputs of a layer as a tensor.  Raises InvalidArgumentError if they do not have the required rank."""
    x = convert_to_tensor(inputs, name="inputs")
    if rank is not None and x.static_shape.rank is not None and x.static_shape.rank != rank:
        raise errors.InvalidValueError(f"inputs of rank {rank} were expected, got shape {x.static_shape}")
    return x
