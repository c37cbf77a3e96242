"""`FuncGraph`: the body of a function while it is being built.

Nodes are built into it as into any graph.  When a node inside uses a tensor of an outer graph, the body *captures* the
tensor: it gets one more argument, whose value each call passes.  The finished body becomes a FunctionDef in the library
that it shares with the outer graphs.
Next to read: `function_def.py` (how a body is written down), then `aexec/control_flow/function.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
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
        name: name of the function, for messages.
        outer: the graph around it, whose tensors it may capture, and whose functions it may call.

    Attributes:
        inputs: the arguments, including those of captured tensors.
        outputs: the results.
        captures: captured tensor of the outer graph → the argument that has its value.
        awaited: nodes of outer graphs that each call of the function waits for; a set in order of insertion.
        original: the graph that this one is a copy of, or None.  A tensor of the original can be used here,
            and means the tensor of the same name.
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
        """The collections of the outer graph, so that variables made inside are found from outside."""
        return self.outer.collections

    @property
    def outermost(self) -> Graph:
        return self.outer.outermost

    def argument(self, like: Tensor, name: str, *, dtype: DType | None = None) -> Tensor:
        """Add an argument with the dtype, the static shape and the handle data of a tensor; return its output."""
        made = self.new_argument(dtype or like.dtype.base, name)
        if dtype is None or dtype is like.dtype.base:
            _know_as(made.node, like)
        return made

    def new_argument(self, dtype: DType, name: str, shape: PartialTensorShape = UNKNOWN_RANK) -> Tensor:
        """Add an argument with a dtype and a static shape; return its output."""
        state = self.build_state
        with self, state.control_dependencies(None), state.name_scope(None), state.device(None):
            attrs = {"T": dtype, "index": len(self.inputs)}
            node = create_node("_Arg", {}, attrs, name=_node_name(name))
        node.shapes = (shape,)
        self.inputs.append(node.output(0))
        return node.output(0)

    def capture(self, tensor: Tensor) -> Tensor:
        """Return the tensor to use inside for a tensor of this graph or of an outer one.

        Raises:
            InvalidArgumentError: the tensor belongs to neither.
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
        """True if this graph is a copy of `graph`, or a copy of a copy."""
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
    """Return the body of a library function as a graph that can be built into.

    Args:
        given: the arguments of a call, whose static shapes the body's arguments get.

    Raises:
        InvalidArgumentError, NotFoundError: the function does not exist, or cannot be instantiated.
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
    """Copy nodes from one graph into another with the same function library.

    Args:
        wanted: ids of the nodes to copy.
        known: endpoint of a node that is not copied → the tensor to use for it in the other graph.

    Returns:
        a function that returns the other graph's tensor for an endpoint.
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
