"""`NodeBuilder` and `GraphDefBuilder`: build nodes from parts, collect the errors and report them together.

They are for programs that make graphs from data.  To write a graph down in code, use the functions of
`op_functions.py`.  After TensorFlow's core/graph/node_builder.h and core/graph/graph_def_builder.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.op_contract.node_def_builder import NodeDefBuilder
from aexec.framework.wire.op_def import OpDef
from aexec.graph.graph import Graph
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.nodes.node import Node, Tensor

__all__ = ["GraphDefBuilder", "NodeBuilder"]

Source = Tensor | Node | None


class NodeBuilder:
    """Builds one node of a graph.

    Args:
        name: the node's name.
        op: a registered op type, or a definition (of a function of the graph's library).

    Example:
        >>> graph = Graph()
        >>> one = NodeBuilder("one", "Const").attr("dtype", "float").attr("value", 1.0).finalize(graph)
        >>> NodeBuilder("two", "AddV2").input(one).input(one, 0).finalize(graph)
        <Node 'two' AddV2(one, one)>
    """

    def __init__(self, name: str, op: str | OpDef) -> None:
        self.name = name
        self._node_def = NodeDefBuilder(name, op)
        self._sources: list[Node] = []
        self._errors: list[str] = []
        self._incomplete = False

    @property
    def incomplete(self) -> bool:
        """True if an input is None, such as the result of `add` for a node that could not be built."""
        return self._incomplete

    def input(self, source: Source | Sequence[Source], index: int = 0) -> NodeBuilder:
        """Set the next input argument.

        Args:
            source: a tensor; a node, for its output `index`; or for an argument of several tensors a list of
                tensors and nodes (output 0 of each).
            index: output of the node.
        """
        if isinstance(source, Sequence):
            tensors = [self._tensor(each, 0) for each in source]
            if None not in tensors:
                self._node_def.input([(t.name, t.dtype) for t in tensors if t is not None])
            return self
        tensor = self._tensor(source, index)
        if tensor is not None:
            self._node_def.input(tensor.name, tensor.dtype)
        return self

    def control_input(self, source: Source) -> NodeBuilder:
        """Make the node wait for a node, or for the node that produces a tensor."""
        node = source.node if isinstance(source, Tensor) else source
        if isinstance(node, Node):
            self._sources.append(node)
            self._node_def.control_input(node.name)
        else:
            self._refuse(node)
        return self

    def attr(self, name: str, value: Any) -> NodeBuilder:
        """Set an attr.  Attrs that the inputs imply may be left out; a value that contradicts them is an error."""
        self._node_def.attr(name, value)
        return self

    def device(self, device: str) -> NodeBuilder:
        """Request a device."""
        self._node_def.device(device)
        return self

    def finalize(self, graph: Graph) -> Node:
        """Add the node to a graph, which does not change if this fails.

        Raises:
            InvalidArgumentError: some parts are not valid (the message names each error), the name is taken, an
                input is of another graph, or the inputs' shapes do not fit.
            NotFoundError: the op is neither registered nor a function of the graph.
        """
        found = list(self._errors)
        foreign = {node.name: None for node in self._sources if not _belongs(node, graph)}
        found += [f"node '{name}' is not of the graph that is built" for name in foreign]
        try:
            node_def = self._node_def.finalize()
        except errors.InvalidArgumentError as error:
            found.append(error.message)
        if found:
            raise errors.InvalidValueError("\n".join(found), node=self.name)
        message = proto.GraphDef(node=[node_def], versions=graph.versions)
        return import_graph_def(graph, message, _INTO_THE_GRAPH)[0]

    def _tensor(self, source: Source, index: int) -> Tensor | None:
        """Return the tensor that is meant, or None after noting an error."""
        if isinstance(source, Node):
            try:
                source = source.output(index)
            except errors.OutOfRangeError as error:
                self._errors.append(error.message)
                return None
        if isinstance(source, Tensor):
            self._sources.append(source.node)
            return source
        self._refuse(source)
        return None

    def _refuse(self, source: Any) -> None:
        self._incomplete |= source is None
        self._errors.append(f"expected a tensor or a node as input of '{self.name}', got {source!r}")


# The inputs are in the graph already, and builders may use internal names.
_INTO_THE_GRAPH = ImportOptions(refer_to_existing=True, internal_names=True)


def _belongs(node: Node, graph: Graph) -> bool:
    return node.id < len(graph.nodes) and graph.nodes[node.id] is node


class GraphDefBuilder:
    """Collects nodes, and the errors of those that could not be built.

    It cannot build loops: their edges lead back to nodes that come later.

    Args:
        graph: initial nodes and functions, which are copied; the graph does not change.

    Example:
        >>> builder = GraphDefBuilder()
        >>> x = builder.add(builder.node("Placeholder", "x").attr("dtype", "float"))
        >>> y = builder.add(builder.node("Sqrt").input(x))
        >>> [node.name for node in builder.to_graph_def().node]
        ['x', 'Sqrt']
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self._graph = Graph() if graph is None else graph.copy()
        self._errors: list[str] = []

    @property
    def ok(self) -> bool:
        """True if no error was noted."""
        return not self._errors

    def node(self, op: str | OpDef, name: str | None = None) -> NodeBuilder:
        """Return a builder for `add`.  Without `name` the node gets its op's name, made unique."""
        if name is None:
            name = self._graph.build_state.unique_name(op if isinstance(op, str) else op.name)
        return NodeBuilder(name, op)

    def add(self, builder: NodeBuilder) -> Node | None:
        """Add a node and return it; None if it could not be built, or if an input is None."""
        if builder.incomplete and self._errors:
            return None
        try:
            return builder.finalize(self._graph)
        except errors.OpError as error:
            self._errors.append(f"node '{builder.name}': {error.message}")
            return None

    def to_graph_def(self) -> proto.GraphDef:
        """Return the nodes as a message.

        Raises:
            InvalidArgumentError: some nodes could not be built; the message names each error.
        """
        if self._errors:
            raise errors.InvalidValueError(
                f"{len(self._errors)} error(s) while building a graph:\n" + "\n".join(self._errors)
            )
        return self._graph.to_graph_def()

    def to_graph(self) -> Graph:
        """Return the nodes as a new graph.  Raises what `to_graph_def` raises."""
        message = self.to_graph_def()
        graph = Graph()
        graph.versions.CopyFrom(message.versions)
        import_graph_def(graph, message, ImportOptions(internal_names=True))
        return graph
