"""Functions that build into the current graph, that of the innermost `with` block."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from math import prod
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype, string
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor, TensorOperators
from aexec.graph.op_functions import constant_array, convert_to_tensor, create_node, require_graph
from aexec.graph.scopes import DeviceFunction, GraphElement

__all__ = [
    "add_to_collection",
    "attr_scope",
    "colocate_with",
    "constant",
    "container",
    "control_dependencies",
    "device",
    "get_collection",
    "get_collection_ref",
    "gradient_override_map",
    "group",
    "identity",
    "name_scope",
    "ones",
    "placeholder",
    "tuple_",
    "zeros",
]


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor whose value each run feeds.

    Args:
        dtype: element type: a DType, a name (`"float32"`), or a NumPy dtype.
        shape: None for any shape, else sizes, with None for a dimension of any size.

    Raises:
        FailedPreconditionError: no graph is being built.
    """
    attrs = {"dtype": as_dtype(dtype), "shape": PartialTensorShape.of(shape)}
    return create_node("Placeholder", {}, attrs, name=name).output(0)


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor with a fixed value.

    Args:
        value: an array, number, string, or nested list of these.
        dtype: element type; by default float32 for Python floats, int32 for ints that fit.
        shape: if given, the value is reshaped, or repeated if it is a single one.

    Raises:
        InvalidArgumentError: the value does not match `dtype`, a number in it is out of range, or it does not have the
            number of elements of `shape`.
    """
    import numpy as np

    wanted = None if dtype is None else as_dtype(dtype)
    if shape is not None:
        array, wanted = constant_array(value, wanted)
        try:
            if np.min(shape, initial=0) < 0:
                raise ValueError("a dimension is negative")
            value = np.broadcast_to(array, shape) if array.size == 1 else array.reshape(shape)
        except (ValueError, TypeError) as error:
            raise errors.InvalidValueError(f"constant of shape {array.shape} given as {shape}: {error}") from None
    return convert_to_tensor(value, wanted, name or "Const")


def zeros(shape: Any, dtype: Any = "float32", name: str | None = None) -> Tensor:
    """A tensor of zeros, of empty strings, or of False: see `ones`."""
    wanted = as_dtype(dtype)
    return _filled(shape, "" if wanted is string else 0, wanted, name or "zeros")


def ones(shape: Any, dtype: Any = "float32", name: str | None = None) -> Tensor:
    """A tensor of ones: a constant if it is small, else filled in each run.

    Args:
        shape: ints, or an int tensor, or both in a list.
    """
    return _filled(shape, 1, as_dtype(dtype), name or "ones")


# Elements; larger tensors are filled by an op, so that the graph does not grow with them.
_CONSTANT_BELOW = 1000


def _filled(shape: Any, value: Any, dtype: DType, name: str) -> Tensor:
    if not isinstance(shape, TensorOperators):
        sizes = [shape] if isinstance(shape, int) else list(shape)
        if not any(isinstance(size, TensorOperators) for size in sizes) and prod(sizes) < _CONSTANT_BELOW:
            return constant(value, dtype, sizes, name)
        shape = sizes
    with name_scope(name) as scope:
        size = convert_to_tensor(shape, None, "shape_as_tensor")
        element = convert_to_tensor(value, dtype)
        attrs = {"index_type": size.dtype.base}
        return create_node("Fill", {"dims": size, "value": element}, attrs, name=scope).output(0)


def group(*items: GraphElement, name: str | None = None) -> Node:
    """An operation that has run when all of `items` have run."""
    with control_dependencies(items):
        return create_node("NoOp", {}, {}, name=name or "group_deps")


def identity(value: Any, name: str | None = None) -> Tensor:
    """A tensor with the same value, on the current device, which waits for the current `control_dependencies`."""
    return create_node("Identity", {"input": convert_to_tensor(value)}, {}, name=name).output(0)


def tuple_(
    tensors: Iterable[Any], name: str | None = None, control_inputs: Iterable[GraphElement] | None = None
) -> list[Any]:
    """The same tensors, each available only when all of them are computed; its name in `aexec` is `tuple`.

    Args:
        tensors: tensors, variables, `IndexedSlices`, operations, or None, which stays None.
        name: scope of the new nodes; `tuple` by default.
        control_inputs: operations that must run before, too.

    Raises:
        InvalidArgumentError: there is no tensor.
    """
    given = [one if one is None or isinstance(one, Node | IndexedSlices) else convert_to_tensor(one) for one in tensors]
    waited = [_waited(one) for one in given if one is not None]
    if not waited:
        raise errors.InvalidValueError("Must have at least one Tensor")
    with name_scope(name or "tuple"):
        gate = group(*waited, *(control_inputs or ()))
        with control_dependencies([gate]):
            return [_after(one, gate) for one in given]


def _waited(item: Any) -> GraphElement:
    found: GraphElement = item.values if isinstance(item, IndexedSlices) else item
    return found


def _after(item: Any, gate: Node) -> Any:
    if item is None:
        return None
    if isinstance(item, Node):
        return gate
    return item._replace(values=identity(item.values)) if isinstance(item, IndexedSlices) else identity(item)


def name_scope(name: str | None) -> AbstractContextManager[str]:
    """Names of nodes made inside begin with `name/`; scopes nest, and their names are made unique like a node's
    name.
    """
    return require_graph().build_state.name_scope(name)


def device(spec: str | DeviceFunction | None) -> AbstractContextManager[None]:
    """Nodes made inside request a device, e.g. `"/device:CPU:0"`.

    Args:
        spec: a name, which completes the requests of inner blocks; None, which cancels those of outer ones; or a
            function that is called with each node and returns its request: `node.device` is that of the inner blocks.

    Raises:
        InvalidArgumentError: not a device name.
    """
    return require_graph().build_state.device(spec)


def control_dependencies(items: Iterable[GraphElement] | None) -> AbstractContextManager[None]:
    """Nodes made inside run after `items`; None clears the dependencies of outer blocks."""
    return require_graph().build_state.control_dependencies(items)


def colocate_with(item: GraphElement) -> AbstractContextManager[None]:
    """Nodes made inside run on the device of `item`."""
    return require_graph().build_state.colocate_with(item)


def attr_scope(attrs: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Nodes made inside have these attrs, unless they set their own; None as a value cancels an outer one.

    Attrs that no op defines begin with `_`, such as `_class`.
    """
    return require_graph().build_state.attr_scope(attrs)


def container(name: str) -> AbstractContextManager[str]:
    """Variables, queues and tables made inside keep their state in the container `name`, so that they can be reset
    together.
    """
    return require_graph().build_state.container(name)


def gradient_override_map(names: Mapping[str, str]) -> AbstractContextManager[None]:
    """Nodes made inside use the gradient of another op: op → name under which a gradient is registered.

    ::

        with aexec.gradient_override_map({"Sign": "Identity"}):
            y = aexec.ops.sign(x)
    """
    return require_graph().build_state.gradient_override_map(names)


def add_to_collection(name: Hashable, value: Any) -> None:
    """Append an item to a collection of the graph, such as `GraphKeys.LOSSES`."""
    require_graph().collections.add(name, value)


def get_collection(name: Hashable, scope: str | None = None) -> list[Any]:
    """A copy of a collection of the graph; with `scope`, only items whose names begin with a match of that pattern."""
    return require_graph().collections.get(name, scope)


def get_collection_ref(name: Hashable) -> list[Any]:
    """A collection of the graph itself; changes to it take effect."""
    return require_graph().collections.get_ref(name)
