"""Writes the body of a function as a FunctionDef of the library: the inverse of `function_body.py`.

Inputs are written `arg`, `node:out_arg:i` and `^node`.  Nodes with side effects are listed as *control outputs*, so
that they run even if no result needs them.
Next to read: `func_graph.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from aexec import proto
from aexec.framework import errors
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.op_def import OpDef
from aexec.graph.calls import functions_called
from aexec.graph.forms.graph_export import node_to_proto
from aexec.graph.func_graph import FuncGraph
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node

__all__ = ["add_function", "free_name", "has_side_effects", "is_stateful"]


def free_name(library: FunctionLibrary, name: str) -> str:
    """Return the first of `name_0`, `name_1`, … that no function has, and reserve it."""
    number = len(library)
    while f"{name}_{number}" in library or f"{name}_{number}" in library.built:
        number += 1
    library.built[f"{name}_{number}"] = None
    return f"{name}_{number}"


def add_function(graph: FuncGraph, name: str) -> NameAttrList:
    """Add a body to the library as the function `name`; return the reference by which nodes call it.

    Raises:
        InvalidArgumentError: a result is a variable's ref, or the name is taken.
    """
    graph.library.add(_function_def(graph, name))
    graph.library.built[name] = graph
    return NameAttrList(name, {})


def is_stateful(graph: FuncGraph) -> bool:
    """True if running the body changes state, or may return different values for the same arguments."""
    return any(has_side_effects(node, graph.library) for node in graph.nodes)


def has_side_effects(node: Node, library: FunctionLibrary) -> bool:
    """True if a node must run even if nothing uses its outputs."""
    if node.op == "_Arg" or not node.op_def.is_stateful:
        return False
    called = [library.op_def(one.function.name) for one in functions_called(node, library)]
    return not called or any(op_def is None or op_def.is_stateful for op_def in called)


def _function_def(graph: FuncGraph, name: str) -> proto.FunctionDef:
    function = proto.FunctionDef()
    signature = function.signature
    signature.name = name
    names = _Names(node.name for node in graph.nodes if node.op != "_Arg")
    arguments: dict[int, str] = {}
    for tensor in graph.inputs:
        arguments[tensor.node.id] = names.free(tensor.node.name)
        signature.input_arg.add(name=arguments[tensor.node.id], type=tensor.dtype.base.enum)
    written = _Inputs(graph, arguments)
    for node in steadily(graph.nodes):
        if node.op == "_Arg":
            continue
        message = function.node_def.add()
        message.CopyFrom(node_to_proto(node))
        del message.input[:]
        message.input.extend(written.text(endpoint) for endpoint in node.in_edges)
        message.input.extend(f"^{graph.nodes[i].name}" for i in node.control_edges if graph.nodes[i].op != "_Arg")
        if has_side_effects(node, graph.library):
            signature.control_output.append(node.name)
            function.control_ret[node.name] = node.name
            signature.is_stateful = True
    outputs = _Names(())
    for tensor in graph.outputs:
        if tensor.dtype.is_ref:
            raise errors.InvalidValueError(f"'{tensor.name}' is a variable's ref: a function gives values")
        output = outputs.free(tensor.node.name.rpartition("/")[2])
        signature.output_arg.add(name=output, type=tensor.dtype.enum)
        function.ret[output] = written.text(tensor.endpoint)
    return function


class _Names:
    """Makes unique names for arguments, of small letters, digits and `_`."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def free(self, wanted: str) -> str:
        base = re.sub(r"[^a-z0-9_]", "_", wanted.lower())
        if not base[:1].isalpha():
            base = f"arg_{base}".rstrip("_")
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


class _Inputs:
    """Writes endpoints of a body as inputs of a FunctionDef."""

    def __init__(self, graph: FuncGraph, arguments: dict[int, str]) -> None:
        self._graph = graph
        self._arguments = arguments
        self._ranges: dict[int, Sequence[tuple[str, int]]] = {}

    def text(self, endpoint: Endpoint) -> str:
        node_id, slot = endpoint
        if node_id in self._arguments:
            return self._arguments[node_id]
        node = self._graph.nodes[node_id]
        if node_id not in self._ranges:
            self._ranges[node_id] = _places(node.op_def, node)
        name, index = self._ranges[node_id][slot]
        return f"{node.name}:{name}:{index}"


def _places(op_def: OpDef, node: Node) -> list[tuple[str, int]]:
    """For each output of a node, return the name of its output argument and its index in that argument."""
    ranges = op_def.output_ranges(node.attrs)
    return [(name, i) for name, (start, stop) in ranges.items() for i in range(stop - start)]
