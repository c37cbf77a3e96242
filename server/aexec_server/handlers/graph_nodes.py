"""Describes the nodes of a session's graph for drawing: names, ops, edges and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

from aiohttp import web

import aexec
from aexec import errors, proto
from aexec.hosting import NameAttrList, OnCancel, datatype_of, run_in_thread, summarize
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http.bodies import JSON
from aexec_server.http.json_text import value_pieces

__all__ = ["routes"]

# Limits: larger graphs can be neither drawn nor read.
_MOST_NODES = 20_000
_MOST_FUNCTIONS = 1000
_MOST_TEXT = 400


def routes(server: Server) -> list[Route]:
    """Return the route `/v1/sessions/{session}/nodes`."""

    async def nodes(request: web.Request) -> web.StreamResponse:
        with server.session_of(request).in_use() as hosted:
            graph = hosted.session.graph
            name, function = request.query.get("node"), request.query.get("function")
            described = await run_in_thread(lambda: _described(graph, name, function), on_cancel=OnCancel.ABANDON)
            answer = {"graph_version": hosted.graph_version} | described
            return await server.door.send(request, value_pieces(answer), JSON)

    path = "/v1/sessions/{session}/nodes"
    call = partial(Route, parameters=("node", "function"), scope=Scope.RUN)
    return [call("GET", path, nodes, "The nodes of the graph, for drawing it", None, "Nodes")]


def _described(graph: aexec.Graph, name: str | None, function: str | None) -> dict[str, Any]:
    """Describe all nodes of a graph or function lazily, or only the named node, with its attrs."""
    described: dict[str, Any] = {"functions": sorted(graph.library)[:_MOST_FUNCTIONS]}
    shown: Iterator[dict[str, Any]]
    if function is None:
        found = graph.nodes if name is None else [node for node in (graph.find(name),) if node is not None]
        shown = (_node(node, with_attrs=name is not None) for node in found)
        total = len(graph.nodes)
    else:
        definition = graph.library.find(function)
        if definition is None:
            raise errors.NotFoundError(f"The graph has no function '{function[:80]}'")
        signature = definition.signature
        total = len(signature.input_arg) + len(definition.node_def) + len(signature.output_arg)
        shown = _function_nodes(definition, with_attrs=name is not None)
        if name is not None:
            shown = (node for node in shown if node["name"] == name)
    shown = islice(shown, _MOST_NODES)
    if name is not None:
        first = next(shown, None)
        if first is None:
            raise errors.NotFoundError(f"There is no node '{name[:80]}'")
        shown = chain([first], shown)
    return described | {"total": total, "nodes": shown}


def _node(node: Any, *, with_attrs: bool) -> dict[str, Any]:
    described = {
        "name": node.name,
        "op": node.op,
        "device": node.device,
        "inputs": node.input_names(),
        "outputs": [
            {
                "datatype": datatype_of(output.dtype),
                "shape": None if output.shape.dims is None else [-1 if d is None else d for d in output.shape.dims],
            }
            for output in node.outputs
        ],
    }
    return described | _calls(node.attrs) | ({"attrs": _texts(node.attrs)} if with_attrs else {})


def _calls(attrs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return `{"calls": names}` with the functions that a node's attrs name; {} if there are none."""
    values = chain.from_iterable(value if isinstance(value, list | tuple) else (value,) for value in attrs.values())
    names = {value.name: None for value in values if isinstance(value, NameAttrList)}
    return {"calls": list(names)} if names else {}


def _function_nodes(definition: proto.FunctionDef, *, with_attrs: bool) -> Iterator[dict[str, Any]]:
    """Describe arguments, nodes and results of a function.  Their types and shapes depend on the call, and are left
    out.
    """

    def node(name: str, op: str, inputs: list[str], device: str = "", attrs: Any = None) -> dict[str, Any]:
        described = {"name": name, "op": op, "device": device, "inputs": inputs, "outputs": []}
        return described | ({"attrs": _texts(attrs or {})} if with_attrs else {})

    for arg in definition.signature.input_arg:
        yield node(arg.name, "_Arg", [])
    for n in definition.node_def:
        yield node(n.name, n.op, list(n.input), n.device, n.attr)
    for arg in definition.signature.output_arg:
        yield node(f"{arg.name}_RetVal", "_Retval", [definition.ret[arg.name]])


def _texts(attrs: Mapping[str, Any]) -> dict[str, str]:
    return {name: summarize(attrs[name])[:_MOST_TEXT] for name in sorted(attrs)}
