"""`FuncGraph`: the body of a function while it is being built.

Nodes are built into it as into any graph.  A tensor of a graph outside that is used inside is *captured*: it comes in
by an argument more, and whoever calls the function gives it.  What was built becomes a FunctionDef of the library that
all graphs around share.
Next to read: `function_def.py` (how a body is written down), then `aexec/control_flow/function.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.collections import Collections
from aexec.graph.function_body import instantiate
from aexec.graph.graph import Graph
from aexec.graph.nodes import colocation
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.nodes.traversal import producers_first
from aexec.graph.op_functions import create_node
from aexec.graph.shape_refiner import infer_shapes
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["FuncGraph", "body_of", "copy_nodes"]


class FuncGraph(Graph):
    """A function's body, as a graph.

    Args:
        name: of what it is the body, for messages.
        outer: the graph that it is built in, whose tensors it may capture, and whose functions it may call.

    Attributes:
        inputs: the arguments, captured ones among them.
        outputs: the results.
        captures: tensor of the graph outside → the argument that it comes in by.
        awaited: nodes of the graphs outside that calls of the function wait for.
        original: the graph that this is a copy of, whose tensors stand for those of the same name here; or None.
    """

    def __init__(self, name: str, outer: Graph) -> None:
        super().__init__()
        self.name = name
        self.outer = outer
        self.node_class = outer.node_class
        self.library = outer.library
        self.versions = outer.versions
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.captures: dict[Tensor, Tensor] = {}
        self.awaited: dict[Node, None] = {}
        self.original: FuncGraph | None = None
        self.functional_control_flow = True
        self.build_state.seed = outer.build_state.seed

    @property
    def collections(self) -> Collections:
        """Those of the graph around: variables that are made inside are found from outside."""
        return self.outer.collections

    @property
    def outermost(self) -> Graph:
        return self.outer.outermost

    def argument(self, like: Tensor, name: str, *, dtype: DType | None = None) -> Tensor:
        """One more argument, of the type and the static shape of a tensor, and for a handle of what it refers to."""
        state = self.build_state
        with self, state.control_dependencies(None), state.name_scope(None), state.device(None):
            attrs = {"T": dtype or like.dtype.base, "index": len(self.inputs)}
            node = create_node("_Arg", {}, attrs, name=_node_name(name))
        if dtype is None or dtype is like.dtype.base:
            _know_as(node, like)
        self.inputs.append(node.output(0))
        return node.output(0)

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor inside that stands for one of a graph outside.

        Raises:
            InvalidArgumentError: it is of none of the graphs around.
        """
        if tensor.graph is self:
            return tensor
        if self._stands_for(tensor.graph):
            return self.node(tensor.node.name).output(tensor.index)
        self.check_foreign(tensor)
        outside = self.outer.capture(tensor)
        found = self.captures.get(outside)
        if found is None:
            found = self.captures[outside] = self.argument(outside, outside.node.name.rpartition("/")[2])
        return found

    def _stands_for(self, graph: Any) -> bool:
        """Is this a copy of a graph?"""
        of = self.original
        while of is not None and of is not graph:
            of = of.original
        return of is not None

    def waits_outside(self, node: Node) -> bool:
        graph: Any = self.outer
        while graph is not None:
            if node.graph is graph:
                self.awaited[node] = None
                return True
            graph = getattr(graph, "outer", None)
        return False

    def check_foreign(self, source: Tensor | TensorProxy) -> None:
        graph: Any = self
        while isinstance(graph, FuncGraph):
            if source.graph is graph or graph._stands_for(source.graph):
                return
            graph = graph.outer
        if source.graph is not graph:
            raise errors.InvalidValueError(
                f"{source!r} is neither of the function '{self.name}' that is being built nor of a graph around it"
            )

    def __repr__(self) -> str:
        return f"<FuncGraph '{self.name}' {self._facts()}, {len(self.inputs)} inputs, {len(self.outputs)} outputs>"


def _node_name(name: str) -> str:
    return name if name[:1].isalnum() or name[:1] == "." else f"arg{name}"


def _know_as(node: Node, like: Tensor) -> None:
    node.shapes = (like.static_shape,)
    data = like.node.handle_data
    node.handle_data = None if data is None or data[like.index] is None else (data[like.index],)


def body_of(outer: Graph, function: NameAttrList, given: Sequence[Tensor]) -> FuncGraph:
    """The body of a function of the library as a graph that can be built on.

    Args:
        given: what it is called with, whose static shapes are known inside.

    Raises:
        InvalidArgumentError, NotFoundError: there is no such function, or no body can be made of it.
    """
    body = instantiate(outer.library, function.name, function.attrs, outer.versions)
    graph = FuncGraph(function.name, outer)
    graph.original = outer.library.built.get(function.name)
    graph.add_nodes([node.rewired(graph, node.in_edges, node.control_edges) for node in body.graph.nodes])
    arguments = set(body.arguments)
    for node_id, tensor in zip(body.arguments, given, strict=True):
        _know_as(graph.nodes[node_id], tensor)
    rest = [node for node in graph.nodes if node.id not in arguments]
    infer_shapes(
        producers_first(rest, graph.nodes.__getitem__), graph.nodes.__getitem__, graph.library, _producer(graph)
    )
    graph.inputs = [graph.nodes[node_id].output(0) for node_id in body.arguments]
    graph.outputs = [graph.nodes[node_id].output(slot) for node_id, slot in body.results]
    return graph


def _producer(graph: Graph) -> int:
    return graph.versions.producer


def copy_nodes(
    source: Graph, wanted: Collection[int], into: Graph, known: Mapping[Endpoint, Tensor]
) -> Callable[[Endpoint], Tensor]:
    """Copy nodes of one graph into another, which knows the same functions.

    Args:
        wanted: ids of the nodes.
        known: what stands in the other graph for tensors of nodes that are not copied.

    Returns:
        what stands there for a tensor.
    """
    chosen = sorted(wanted)
    ids = {node_id: len(into.nodes) + position for position, node_id in enumerate(chosen)}

    def there(endpoint: Endpoint) -> Endpoint:
        found = known.get(endpoint)
        return (ids[endpoint[0]], endpoint[1]) if found is None else found.endpoint

    copies = []
    for node_id in chosen:
        node = source.nodes[node_id]
        copy = node.rewired(
            into,
            tuple([there(endpoint) for endpoint in node.in_edges]),
            tuple([ids[i] for i in node.control_edges if i in ids]),
        )
        copy.id = ids[node_id]
        copy.name = into.build_state.unique_name(node.name, "")
        if colocation.ATTR in copy.attrs:
            copy.attrs = _without(copy.attrs, {colocation.ATTR})
            copy.wire = None
        copies.append(copy)
    into.add_nodes(copies)
    return lambda endpoint: Tensor(into.nodes[there(endpoint)[0]], there(endpoint)[1])


def _without(attrs: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in set(names)}
