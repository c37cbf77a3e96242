"""`NodeBuilder` and `GraphDefBuilder`: nodes from parts, with errors collected and reported together.

For code that makes graphs of what it reads, rather than writes them down: `op_functions.py` has the
functions for that.  What a node must be like, `NodeDefBuilder` and the import check.
After TensorFlow's core/graph/node_builder.h and core/graph/graph_def_builder.h.
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
        """Was an input given that is None, as of a node that could not be built?"""
        return self._incomplete

    def input(self, source: Source | Sequence[Source], index: int = 0) -> NodeBuilder:
        """Give the next input argument.

        Args:
            source: a tensor; a node, of which output `index` is meant; or for arguments of several
                tensors a list of tensors and nodes, output 0 of each.
            index: an output of the node.
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
        """Let the node run after a node, or after the one that makes a tensor."""
        node = source.node if isinstance(source, Tensor) else source
        if isinstance(node, Node):
            self._sources.append(node)
            self._node_def.control_input(node.name)
        else:
            self._refuse(node)
        return self

    def attr(self, name: str, value: Any) -> NodeBuilder:
        """Set an attr.  Those that the inputs imply may be left out, a contradiction is an error."""
        self._node_def.attr(name, value)
        return self

    def device(self, device: str) -> NodeBuilder:
        """Ask for a device."""
        self._node_def.device(device)
        return self

    def finalize(self, graph: Graph) -> Node:
        """Add the node to a graph.  If that fails the graph stays as it was.

        Raises:
            InvalidArgumentError: naming every error found in what was given; or the name is taken,
                an input is of another graph, the inputs' shapes do not fit.
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
        """The tensor meant, or None if an error was noted."""
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


# Inputs are there already; builders may make internal nodes.
_INTO_THE_GRAPH = ImportOptions(refer_to_existing=True, internal_names=True)


def _belongs(node: Node, graph: Graph) -> bool:
    return node.id < len(graph.nodes) and graph.nodes[node.id] is node


class GraphDefBuilder:
    """Collects nodes, and the errors of those that could not be built.

    Loops, whose edges lead back, cannot be built node by node.

    Args:
        graph: where to begin: nodes and functions are taken over, it is left as it is.

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
        """Did everything go well so far?"""
        return not self._errors

    def node(self, op: str | OpDef, name: str | None = None) -> NodeBuilder:
        """A builder of a node, to be given to `add`.  Without `name` it is called after its op, made unique."""
        if name is None:
            name = self._graph.build_state.unique_name(op if isinstance(op, str) else op.name)
        return NodeBuilder(name, op)

    def add(self, builder: NodeBuilder) -> Node | None:
        """Add a node; None if it could not be built.  What has a None as input then is passed over."""
        if builder.incomplete and self._errors:
            return None
        try:
            return builder.finalize(self._graph)
        except errors.OpError as error:
            self._errors.append(f"node '{builder.name}': {error.message}")
            return None

    def to_graph_def(self) -> proto.GraphDef:
        """The nodes as a message.

        Raises:
            InvalidArgumentError: naming every error found.
        """
        if self._errors:
            raise errors.InvalidValueError(
                f"{len(self._errors)} error(s) while building a graph:\n" + "\n".join(self._errors)
            )
        return self._graph.to_graph_def()

    def to_graph(self) -> Graph:
        """A graph of its own of the nodes.  Raises as `to_graph_def`."""
        message = self.to_graph_def()
        graph = Graph()
        graph.versions.CopyFrom(message.versions)
        import_graph_def(graph, message, ImportOptions(internal_names=True))
        return graph
