"""`graph_page`: a graph as one file of HTML that folds, searches and zooms, without a server or other sites.

It has the data of the graph and the modules of JavaScript in `aexec/graph/viewer/`, with which a server's console draws
graphs too.  The modules are in the page as `data:` addresses, which its import map names.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from aexec import proto
from aexec.graph.forms.node_descriptions import describe_function, describe_node
from aexec.graph.nodes.node import Node

__all__ = ["graph_frame", "graph_page", "viewer_files"]

_FOLDER = Path(__file__).parents[1] / "viewer"
_SUFFIXES = (".js", ".css")
# The most nodes that are drawn, those of functions included, and of graphs whose attrs are in the page.
_MOST_NODES = 20_000
_MOST_WITH_ATTRS = 2_000
# What a module imports from a neighbour.
_IMPORT = re.compile(r'(?<=from )"\./([\w./]+)"')


@functools.cache
def viewer_files() -> Mapping[str, bytes]:
    """Return the viewer's files by path, such as `graph_view.js` and `vendor/dagre.esm.js`."""
    paths = (path for path in sorted(_FOLDER.rglob("*")) if path.suffix in _SUFFIXES)
    return {path.relative_to(_FOLDER).as_posix(): path.read_bytes() for path in paths}


def graph_page(nodes: Iterable[Node], functions: Iterable[proto.FunctionDef] = ()) -> str:
    """Return a page that draws these nodes, and the functions that they call.

    The first 20 000 nodes are drawn; attrs are left out if there are more than 2000.
    """
    nodes = list(nodes)
    with_attrs = len(nodes) <= _MOST_WITH_ATTRS
    left = max(0, _MOST_NODES - len(nodes))
    bodies: dict[str, list[dict[str, Any]]] = {}
    for definition in functions:
        body = list(islice(describe_function(definition, with_attrs=with_attrs), left))
        left -= len(body)
        bodies[definition.signature.name] = body
    data = {
        "total": len(nodes),
        "nodes": [describe_node(node, with_attrs=with_attrs) for node in nodes[:_MOST_NODES]],
        "functions": bodies,
    }
    return "".join([*_head(), f'<script type="application/json" id="graph">{_as_text(data)}</script>', _SCRIPT])


def graph_frame(page: str, height: str = "36rem") -> str:
    """Return a page as a frame in another page, such as a notebook, whose styles and scripts it cannot reach."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" title="Graph" '
        f'style="width: 100%; height: {height}; border: 0"></iframe>'
    )


def _head() -> Iterable[str]:
    files = viewer_files()
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Graph</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{files['page_of_graph.css'].decode()}{files['graph.css'].decode()}</style>"
    modules = {f"viewer/{name}": _address(text) for name, text in files.items() if name.endswith(".js")}
    yield f'<script type="importmap">{json.dumps({"imports": modules})}</script></head><body><main id="viewer"></main>'


def _address(text: bytes) -> str:
    """Return a module as a `data:` address, with imports by the names of the import map."""
    named = _IMPORT.sub(r'"viewer/\1"', text.decode())
    return f"data:text/javascript;base64,{base64.b64encode(named.encode()).decode()}"


def _as_text(data: Any) -> str:
    """Return JSON that cannot end the element that it is in."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


_SCRIPT = '<script type="module">import "viewer/page_of_graph.js";</script></body></html>'
