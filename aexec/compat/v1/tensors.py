"""Graphs, shapes and dimensions with TensorFlow's methods, which tensors, operations and shapes are given here, too.

What a graph is built of is aexec's own; what TensorFlow calls otherwise, or aexec has no method for, is added to its
classes when this module is imported: `x.eval()`, `x.get_shape()`, `op.run()`.  Next to read: `session.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aexec import proto
from aexec.compat.v1.default_session import default_session
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.graph import Graph as _Graph
from aexec.graph.graph import current_graph, set_default_graph
from aexec.graph.node import Node, Tensor, TensorOperators

__all__ = ["Dimension", "Graph", "TensorShape", "dimension_value", "get_default_graph", "reset_default_graph"]


class Graph(_Graph):
    """A graph with TensorFlow's methods."""

    def as_default(self) -> Graph:
        """To be entered: nodes made inside are of this graph."""
        return self

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> proto.GraphDef:
        """The graph as a message, without shapes."""
        return self.to_graph_def(from_version or 0)

    def get_operations(self) -> list[Node]:
        """All operations."""
        return list(self.nodes)

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """As `tf.get_collection`."""
        return self.collections.get(name, scope)

    def get_collection_ref(self, name: str) -> list[Any]:
        """As `tf.get_collection_ref`."""
        return self.collections.get_ref(name)

    def add_to_collection(self, name: str, value: Any) -> None:
        """As `tf.add_to_collection`."""
        self.collections.add(name, value)

    def get_all_collection_keys(self) -> list[str]:
        """Names of the collections that are not private."""
        return self.collections.keys

    def clear_collection(self, name: str) -> None:
        """Forget a collection."""
        self.collections.clear(name)

    @property
    def seed(self) -> int | None:
        """What `tf.set_random_seed` chose."""
        return self.build_state.seed

    def unique_name(self, name: str) -> str:
        """The name that the next node of this name would get."""
        return self.build_state.unique_name(name)

    def name_scope(self, name: str | None) -> Any:
        """As `tf.name_scope`."""
        return self.build_state.name_scope(name)

    def device(self, device_name_or_function: str | None) -> Any:
        """As `tf.device`."""
        return self.build_state.device(device_name_or_function)

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Any:
        """As `tf.control_dependencies`."""
        return self.build_state.control_dependencies(control_inputs)

    def gradient_override_map(self, op_type_map: Mapping[str, str]) -> Any:
        """As `aexec.gradient_override_map`."""
        return self.build_state.gradient_override_map(op_type_map)

    def container(self, container_name: str) -> Any:
        """As `tf.container`."""
        return self.build_state.container(container_name)


def get_default_graph() -> _Graph:
    """The graph whose block is innermost; outside of all blocks the process's."""
    graph = current_graph()
    return reset_default_graph() if graph is None else graph


def reset_default_graph() -> Graph:
    """Begin a new default graph of the process."""
    graph = Graph()
    set_default_graph(graph)
    return graph


class Dimension(int):
    """A size, which is an int and has a `value`, too."""

    @property
    def value(self) -> int:
        """The size."""
        return int(self)


class _UnknownDimension:
    value = None

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "Dimension(None)"


def _dimension(size: int | None) -> Any:
    return _UnknownDimension() if size is None else Dimension(size)


def dimension_value(dimension: Any) -> int | None:
    """`tf.dimension_value`: the size as an int, or None."""
    size = getattr(dimension, "value", dimension)
    return None if size is None else int(size)


class TensorShape(PartialTensorShape):
    """A shape whose sizes have a `value`."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return TensorShape(found) if isinstance(found, tuple) else _dimension(found)


def _get_shape(self: Tensor) -> TensorShape:
    """The static shape."""
    return TensorShape(self.shape.dims)


def _set_shape(self: Tensor, shape: Any) -> None:
    """Say more of the static shape than inference knows; a run does not check it."""
    more = shape if isinstance(shape, PartialTensorShape) else PartialTensorShape(shape)
    shapes = [tensor.shape for tensor in self.node.outputs]
    shapes[self.index] = shapes[self.index].merge_with(more)
    self.node.shapes = shapes


def _eval(self: Any, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Any:
    """The value in a session, by default that of the `with` block."""
    return _session(session).run(self, feed_dict)


def _run(self: Node, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Any:
    """Run it in a session, by default that of the `with` block."""
    return _session(session).run(self, feed_dict)


def _session(given: Any) -> Any:
    return given if given is not None else default_session()


def _get_attr(self: Node, name: str) -> Any:
    """An attr."""
    return self.attrs[name]


def _as_list(self: PartialTensorShape) -> list[int | None]:
    """The sizes, None for those that are not known."""
    return list(self)


def _give(to: type, **methods: Any) -> None:
    for name, method in methods.items():
        if not hasattr(to, name):
            setattr(to, name, method)


_give(TensorOperators, eval=_eval, get_shape=_get_shape, set_shape=_set_shape)
_give(Node, run=_run, type=property(lambda self: self.op), get_attr=_get_attr, values=lambda self: self.outputs)
_give(PartialTensorShape, as_list=_as_list, ndims=property(lambda self: self.rank))
_give(DType, as_numpy_dtype=property(lambda self: self.np.type), base_dtype=property(lambda self: self.base))
