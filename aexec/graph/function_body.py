"""Function bodies: a FunctionDef with its attrs bound, as a Graph of its own.

Inside a FunctionDef inputs are written `arg`, `arg:i`, `node:out_arg`, `node:out_arg:i` and `^node`.  A body graph has
ordinary edges, one `_Arg` node per flattened argument, and endpoints for the results.  The rules are those of
core/framework/function.cc.
Next to read: `aexec/runtime/functions/functions.py`, which runs bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aexec import proto
from aexec.framework import errors, versions
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire import attr_value
from aexec.framework.wire.node_def import resolve_attrs
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.node_import import ImportOptions, NodeImport
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.node_wire import flatten

__all__ = ["FunctionBody", "check_functions", "instantiate"]

# Largest nesting of functions in an attr, and most bytes that placeholders may add to it.  Without these limits a
# function that calls itself with an attr made from its own attr would be instantiated in ever larger forms.
_MAX_NESTING = 32
_MAX_BOUND_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """An instantiated function.  It owns its graph, which is taken apart with it.

    Attributes:
        name: name of the function.
        graph: the body; it shares the caller's function library.
        arguments: ids of the `_Arg` nodes, in order.
        results: (node id, output slot) of each flattened result.
        argument_types, result_types: their DTypes.
        side_effects: ids of the nodes that run even if no result needs them: control returns and stateful nodes.
    """

    name: str
    graph: NodeTable
    arguments: tuple[int, ...]
    results: tuple[Endpoint, ...]
    argument_types: tuple[DType, ...]
    result_types: tuple[DType, ...]
    side_effects: tuple[int, ...]

    def __del__(self) -> None:
        if hasattr(self, "graph"):
            self.graph.take_apart()


def instantiate(
    library: FunctionLibrary, name: str, attrs: Mapping[str, Any], function_versions: proto.VersionDef
) -> FunctionBody:
    """Bind a function's attrs and build its body.

    Args:
        attrs: values (as Python) for every attr of the signature.

    Raises:
        InvalidArgumentError: the function does not exist, an attr has no value, a result or input names nothing, or
            types contradict the signature.
        NotFoundError: an op of the body is not registered.
    """
    function = library.get(name)
    try:
        return _Instantiation(library, function, attrs).build(function_versions)
    except errors.OpError as error:
        if f"function '{name}'" not in error.message:
            error.message += f" (in function '{name}')"
        raise


class _Instantiation:
    def __init__(self, library: FunctionLibrary, function: proto.FunctionDef, attrs: Mapping[str, Any]) -> None:
        self.library = library
        self.function = function
        self.name = function.signature.name
        signature = library.op_def(self.name)
        assert signature is not None
        self.signature = signature
        missing = [a.name for a in signature.attrs if a.name not in attrs and not a.has_default]
        if missing:
            raise errors.InvalidArgumentError(
                f"Attr {missing[0]} of function '{self.name}' is not given: "
                f"Failed to bind all placeholders in {self.name}"
            )
        kinds = {a.name: a.type for a in signature.attrs}
        self.attrs = {**signature.defaults, **attrs}
        self.bindings = {k: attr_value.encode(v, kinds.get(k)) for k, v in self.attrs.items()}
        self.bound_bytes = 0
        self.graph_def = proto.GraphDef()
        # Name of an argument → the names of the graph inputs that it expands to.
        self.argument_edges: dict[str, list[str]] = {}
        self.output_edges: dict[str, dict[str, tuple[int, int]]] = {}

    def build(self, function_versions: proto.VersionDef) -> FunctionBody:
        arguments = self._add_arguments()
        for node_def in steadily(self.function.node_def):
            self._add_node(node_def)
        for node_def in steadily(self.graph_def.node[len(arguments) :]):
            self._rewrite_inputs(node_def)
        graph = NodeTable()
        graph.versions.CopyFrom(function_versions)
        self.graph_def.versions.CopyFrom(function_versions)
        versions.check(function_versions)
        nodes = NodeImport(graph, flatten(self.graph_def), ImportOptions(internal_names=True), self.library)
        nodes.make()
        nodes.commit()
        results = self._results(graph)
        argument_types = self.signature.input_types(self.attrs)
        result_types = self.signature.output_types(self.attrs)
        for (arg, (node_id, slot)), wanted in zip(results, result_types, strict=True):
            given = graph.nodes[node_id].output_types[slot]
            if given.base is not wanted.base:
                raise errors.InvalidArgumentError(
                    f"Invalid ret types {arg} : {wanted} vs. {given} in function '{self.name}'"
                )
        return FunctionBody(
            self.name,
            graph,
            tuple(range(len(arguments))),
            tuple(endpoint for _, endpoint in results),
            argument_types,
            result_types,
            self._side_effects(graph),
        )

    def _add_arguments(self) -> Sequence[DType]:
        types = self.signature.input_types(self.attrs)
        ranges = self.signature.input_ranges(self.attrs)
        for arg in self.signature.inputs:
            start, stop = ranges[arg.name]
            is_list = bool(arg.number_attr or arg.type_list_attr)
            names = [f"{arg.name}_{i}" for i in range(stop - start)] if is_list else [arg.name]
            self.argument_edges[arg.name] = names
            for index, name in enumerate(names, start):
                node = self.graph_def.node.add(name=name, op="_Arg")
                node.attr["T"].type = types[index].enum
                node.attr["index"].i = index
        return types

    def _add_node(self, node_def: proto.NodeDef) -> None:
        node = self.graph_def.node.add()
        node.CopyFrom(node_def)
        for name in node.attr:
            self._bind(node.attr[name])
        op_def = self.library.lookup_op(node.op)
        self.output_edges[node.name] = op_def.output_ranges(resolve_attrs(op_def, node.attr, node=node.name))

    def _bind(self, value: proto.AttrValue, depth: int = 0) -> None:
        """Replace `$placeholder` by the value bound to it, in function attrs too."""
        kind = value.WhichOneof("value")
        if kind == "placeholder":
            bound = self.bindings.get(value.placeholder)
            if bound is None:
                raise errors.InvalidArgumentError(
                    f"Failed to bind all placeholders in {self.name}: ${value.placeholder} is not given"
                )
            if depth:
                self._check_growth(bound, depth)
            value.CopyFrom(bound)
        elif kind == "func":
            for name in value.func.attr:
                self._bind(value.func.attr[name], depth + 1)
        elif kind == "list":
            for function in value.list.func:
                for name in function.attr:
                    self._bind(function.attr[name], depth + 1)

    def _check_growth(self, bound: proto.AttrValue, depth: int) -> None:
        """Refuse to bind a value that makes the attr of a called function too large."""
        self.bound_bytes += bound.ByteSize()
        if self.bound_bytes > _MAX_BOUND_BYTES or _nesting(bound, _MAX_NESTING - depth) > _MAX_NESTING - depth:
            raise errors.InvalidArgumentError(
                f"Function '{self.name}' passes on attrs that nest functions more than {_MAX_NESTING} deep "
                f"or have more than {_MAX_BOUND_BYTES} bytes"
            )

    def _rewrite_inputs(self, node: proto.NodeDef) -> None:
        inputs: list[str] = []
        for text in node.input:
            inputs.extend([text] if text.startswith("^") else self._edges(text, f"Node '{node.name}'"))
        del node.input[:]
        node.input.extend(inputs)

    def _edges(self, text: str, user: str) -> list[str]:
        """Return the graph inputs that one input string of the body stands for."""
        name, *rest = text.split(":")
        if name in self.argument_edges:
            edges = self.argument_edges[name]
            if not rest:
                return edges
            if len(rest) == 1 and rest[0].isdigit() and int(rest[0]) < len(edges):
                return [edges[int(rest[0])]]
        outputs = self.output_edges.get(name)
        if outputs is not None and rest and rest[0] in outputs:
            start, stop = outputs[rest[0]]
            if len(rest) == 1:
                return [f"{name}:{i}" for i in range(start, stop)]
            if len(rest) == 2 and rest[1].isdigit() and start + int(rest[1]) < stop:
                return [f"{name}:{start + int(rest[1])}"]
        raise errors.InvalidArgumentError(f"{user} -> {text} is not found. (in function '{self.name}')")

    def _results(self, graph: NodeTable) -> list[tuple[str, tuple[int, int]]]:
        results = []
        for arg, (start, stop) in self.signature.output_ranges(self.attrs).items():
            text = self.function.ret.get(arg)
            if text is None:
                raise errors.InvalidArgumentError(f"Return {arg} missing in function '{self.name}'.")
            edges = self._edges(text, f"Return {arg}")
            if len(edges) != stop - start:
                raise errors.InvalidArgumentError(
                    f"Return {arg} -> {text} of function '{self.name}' has {len(edges)} tensors, "
                    f"expected {stop - start}"
                )
            for edge in edges:
                tensor = graph.tensor(edge)
                results.append((arg, tensor.endpoint))
        return results

    def _side_effects(self, graph: NodeTable) -> tuple[int, ...]:
        ids: dict[int, None] = {}
        for output, name in self.function.control_ret.items():
            node = graph.find(name)
            if node is None:
                raise errors.InvalidArgumentError(
                    f"Control return {output} -> {name} is not found. (in function '{self.name}')"
                )
            ids[node.id] = None
        for node in graph.nodes:
            if node.op != "_Arg" and (node.op_def.is_stateful or self._calls_stateful(node)):
                ids[node.id] = None
        return tuple(ids)

    def _calls_stateful(self, node: Node) -> bool:
        called = self.library.op_def(node.op)
        return called is not None and called.is_stateful


def _nesting(value: proto.AttrValue, limit: int) -> int:
    """Return how deep functions are nested in an attr value, at most `limit`."""
    kind = value.WhichOneof("value")
    functions = [value.func] if kind == "func" else value.list.func if kind == "list" else ()
    if limit < 0 or not functions:
        return 0
    inner = [_nesting(f.attr[name], limit - 1) for f in functions for name in f.attr]
    return 1 + max(inner, default=0)


def check_functions(library: FunctionLibrary, names: Iterable[str], function_versions: proto.VersionDef) -> None:
    """Raise for functions that can never run: untyped arguments, unknown ops, results that name nothing.

    The body of a polymorphic function can be built only when its attrs are known, so only its ops are checked.

    Raises:
        InvalidArgumentError, NotFoundError: as `instantiate` does.
    """
    for name in steadily(names):
        function = library.get(name)
        for arg in (*function.signature.input_arg, *function.signature.output_arg):
            if not (arg.type or arg.type_attr or arg.type_list_attr):
                raise errors.InvalidArgumentError(f"No type fields in argument '{arg.name}' of function '{name}'")
        for node_def in function.node_def:
            try:
                library.lookup_op(node_def.op)
            except errors.NotFoundError as error:
                error.message += f" (used by node '{node_def.name}' of function '{name}')"
                raise
        if not function.signature.attr:
            instantiate(library, name, {}, function_versions)
