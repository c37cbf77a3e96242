"""Describes the nodes of a session's graph for drawing: names, ops, edges and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from aiohttp import web

import aexec
from aexec import errors
from aexec.hosting import OnCancel, describe_function, describe_node, run_in_thread
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http.bodies import JSON
from aexec_server.http.json_text import value_pieces

__all__ = ["routes"]

# Limits: larger graphs can be neither drawn nor read.
_MOST_NODES = 20_000
_MOST_FUNCTIONS = 1000


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
        shown = (describe_node(node, with_attrs=name is not None) for node in found)
        total = len(graph.nodes)
    else:
        definition = graph.library.find(function)
        if definition is None:
            raise errors.NotFoundError(f"The graph has no function '{function[:80]}'")
        signature = definition.signature
        total = len(signature.input_arg) + len(definition.node_def) + len(signature.output_arg)
        shown = describe_function(definition, with_attrs=name is not None)
        if name is not None:
            shown = (node for node in shown if node["name"] == name)
    shown = islice(shown, _MOST_NODES)
    if name is not None:
        first = next(shown, None)
        if first is None:
            raise errors.NotFoundError(f"There is no node '{name[:80]}'")
        shown = chain([first], shown)
    return described | {"total": total, "nodes": shown}
