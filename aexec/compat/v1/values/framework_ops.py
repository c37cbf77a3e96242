"""Scopes with TensorFlow's arguments, and functions that take a graph.

Next to read: `aexec/client/building.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from aexec import training
from aexec.autodiff.custom_gradient import custom_gradient
from aexec.client import building
from aexec.compat.v1.values.device_spec import DeviceSpec
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.control_flow.structure import leaves_of
from aexec.framework import errors
from aexec.framework.op_contract import gradient_registry
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import require_graph
from aexec.graph.tensor_proxy import TensorProxy
from aexec.variables.variable import Variable

__all__ = [
    "AggregationMethod",
    "add_to_collections",
    "assert_global_step",
    "control_dependencies",
    "create_global_step",
    "device",
    "executing_eagerly",
    "get_global_step",
    "get_or_create_global_step",
    "grad_pass_through",
    "group",
    "is_symbolic_tensor",
    "is_tensor",
    "name_scope",
    "no_gradient",
    "register_gradient",
]


def name_scope(
    name: str | None = None, default_name: str | None = None, values: Any = None
) -> AbstractContextManager[str]:
    """`tf.name_scope`."""
    return building.name_scope(default_name if name is None else name)


def device(device_name_or_function: Any) -> AbstractContextManager[None]:
    """`tf.device`, of a name, a `DeviceSpec`, or a function that returns one of them for a node."""
    if callable(device_name_or_function):
        return building.device(lambda node: _device_name(device_name_or_function(node)))
    return building.device(_device_name(device_name_or_function))


def _device_name(spec: Any) -> Any:
    return spec.to_string() if isinstance(spec, DeviceSpec) else spec


def control_dependencies(control_inputs: Iterable[Any] | None) -> AbstractContextManager[None]:
    """`tf.control_dependencies`, of operations and tensors, or their names."""
    graph = get_default_graph()
    items = None if control_inputs is None else [_element(graph, item) for item in control_inputs]
    return building.control_dependencies(items)


def _element(graph: Graph, item: Any) -> Any:
    return graph.as_graph_element(item) if isinstance(item, str) else item


def add_to_collections(names: Iterable[Hashable] | str, value: Any) -> None:
    """`tf.add_to_collections`."""
    require_graph().collections.add_to_each(names, value)


def group(*inputs: Any, name: str | None = None) -> Node:
    """`tf.group`: an operation that depends on operations, tensors and variables, which may be nested."""
    items = [item for item in leaves_of(inputs) if item is not None]
    for item in items:
        if not isinstance(item, Node | Tensor | TensorProxy):
            raise TypeError(
                f"'inputs' should be zero or more (nested) Tensors. Received '{item!r}' with type '{type(item)}'."
            )
    return building.group(*items, name=name)


def get_global_step(graph: Graph | None = None) -> Variable | None:
    """`tf.train.get_global_step`."""
    with graph or get_default_graph():
        return training.get_global_step()


def create_global_step(graph: Graph | None = None) -> Variable:
    """`tf.train.create_global_step`."""
    with graph or get_default_graph():
        return training.create_global_step()


def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """`tf.train.get_or_create_global_step`."""
    with graph or get_default_graph():
        return training.get_or_create_global_step()


def assert_global_step(global_step_tensor: Any) -> None:
    """`tf.train.assert_global_step`.  Raises TypeError if it is not a scalar of integers."""
    if not isinstance(global_step_tensor, Tensor | TensorProxy):
        raise errors.InvalidTypeError(f'Existing "global_step" must be a Variable or Tensor: {global_step_tensor!r}.')
    if not global_step_tensor.dtype.base.is_integer:
        raise errors.InvalidTypeError(f'Existing "global_step" does not have integer type: {global_step_tensor.dtype}')
    if global_step_tensor.static_shape.rank not in (None, 0):
        raise errors.InvalidTypeError(f'Existing "global_step" is not scalar: {global_step_tensor.static_shape}')


class AggregationMethod:
    """`tf.AggregationMethod`: how the gradients of a tensor's uses are summed."""

    ADD_N = DEFAULT = "add_n"
    EXPERIMENTAL_TREE = "tree"
    EXPERIMENTAL_ACCUMULATE_N = "accumulate_n"


def executing_eagerly() -> bool:
    """`tf.executing_eagerly`: always False, since there is only graph mode."""
    return False


def is_tensor(x: Any) -> bool:
    """`tf.is_tensor`: True for a tensor, a variable, or a sparse tensor."""
    return isinstance(x, Tensor | TensorProxy | SparseTensor)


def is_symbolic_tensor(tensor: Any) -> bool:
    """`tf.is_symbolic_tensor`: True for a tensor of a graph, False for a variable."""
    return isinstance(tensor, Tensor)


def register_gradient(op_type: str) -> Callable[[Any], Any]:
    """`tf.RegisterGradient`: the decorated function is the gradient of an op."""
    if not isinstance(op_type, str):
        raise errors.InvalidTypeError(f"op_type must be a string, got {op_type!r}")
    return gradient(op_type)


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.grad_pass_through`: a function with the results of `f`, whose gradients are those of the identity."""

    @custom_gradient
    @functools.wraps(f)
    def passing(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs), lambda *gradients: gradients if len(gradients) > 1 else gradients[0]

    return passing


def no_gradient(op_type: str) -> None:
    """`tf.NotDifferentiable`: declare that an op has no gradient."""
    if not isinstance(op_type, str):
        raise errors.InvalidTypeError(f"op_type must be a string, got {op_type!r}")
    gradient_registry.no_gradient(op_type)
