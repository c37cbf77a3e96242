"""`tf.Graph`, and the default graph.

The graph is aexec's own, and its nodes are `tf.Operation`s.  Next to read: `operations.py`, then `session.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from aexec import proto
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.values import members  # noqa: F401 - types and rows have TensorFlow's members then
from aexec.compat.v1.values.operations import Operation
from aexec.graph.graph import Graph as _Graph
from aexec.graph.graph import current_graph, set_default_graph
from aexec.graph.nodes.node import Node, Tensor

__all__ = ["Graph", "get_default_graph", "reset_default_graph"]


class Graph(_Graph):
    """A graph with TensorFlow's methods."""

    node_class = Operation

    def as_default(self) -> Graph:
        """A context manager: nodes made inside belong to this graph."""
        return self

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> proto.GraphDef:
        """The graph as a message, without shapes."""
        return self.to_graph_def(from_version or 0)

    def get_operations(self) -> list[Node]:
        """All operations."""
        return list(self.nodes)

    def get_name_scope(self) -> str:
        """The name scope that new operations are in, as `a/b`; empty outside of all."""
        return self.build_state.scope.rstrip("/")

    def get_collection(self, name: Hashable, scope: str | None = None) -> list[Any]:
        """Like `tf.get_collection`."""
        return self.collections.get(name, scope)

    def get_collection_ref(self, name: Hashable) -> list[Any]:
        """Like `tf.get_collection_ref`."""
        return self.collections.get_ref(name)

    def add_to_collection(self, name: Hashable, value: Any) -> None:
        """Like `tf.add_to_collection`."""
        self.collections.add(name, value)

    def add_to_collections(self, names: Iterable[Hashable] | str, value: Any) -> None:
        """Like `tf.add_to_collections`."""
        self.collections.add_to_each(names, value)

    def get_all_collection_keys(self) -> list[str]:
        """Names of the collections that are not private."""
        return self.collections.keys

    def clear_collection(self, name: Hashable) -> None:
        """Empty a collection."""
        self.collections.clear(name)

    @property
    def seed(self) -> int | None:
        """The seed set by `tf.set_random_seed`."""
        return self.build_state.seed

    def unique_name(self, name: str) -> str:
        """The name that the next node with this name would get."""
        return self.build_state.unique_name(name)

    def name_scope(self, name: str | None) -> Any:
        """Like `tf.name_scope`."""
        return self.build_state.name_scope(name)

    def device(self, device_name_or_function: str | None) -> Any:
        """Like `tf.device`."""
        return self.build_state.device(device_name_or_function)

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Any:
        """Like `tf.control_dependencies`."""
        return self.build_state.control_dependencies(control_inputs)

    def gradient_override_map(self, op_type_map: Mapping[str, str]) -> Any:
        """Like `aexec.gradient_override_map`."""
        return self.build_state.gradient_override_map(op_type_map)

    def container(self, container_name: str) -> Any:
        """Like `tf.container`."""
        return self.build_state.container(container_name)

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Any:
        """Like `tf.colocate_with`."""
        refuse("Graph.colocate_with", ignore_existing=ignore_existing)
        return self.build_state.colocate_with(op)

    def is_feedable(self, tensor: Tensor) -> bool:
        """True: every tensor can be fed."""
        return True

    def is_fetchable(self, tensor_or_op: Tensor | Node) -> bool:
        """True: everything can be fetched."""
        return True

    @property
    def building_function(self) -> bool:
        """False: it is no function's body."""
        return False

    @property
    def graph_def_versions(self) -> proto.VersionDef:
        """The versions of the program that made it."""
        return self.versions


def get_default_graph() -> _Graph:
    """The graph of the innermost block; outside of all blocks the process's."""
    graph = current_graph()
    return reset_default_graph() if graph is None else graph


def reset_default_graph() -> Graph:
    """Make a new default graph for the process."""
    graph = Graph()
    set_default_graph(graph)
    return graph
